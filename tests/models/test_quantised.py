"""On quantised models what is attached acts as its formula on the dequantised weights, trains, and is refused else."""

import copy
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor
from training import arguments

import tunescope as ts
from tunescope.attachment.attached import Attached
from tunescope.models.fingerprint import _FINGERPRINTS, fingerprint

pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's and bitsandbytes' own
ARMS = ["lora:rank=2", "prefix:length=3", "soft:length=3", "adapter:bottleneck=3", "inputs:length=2"]


def config() -> Any:
    """Widths that blocks of 64 divide."""
    return tf.LlamaConfig(**tiny.LLAMA_LIKE | {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16})


def saved(folder: Path) -> str:
    tiny.build(tf.AutoModelForCausalLM, config(), dtype=torch.float32).save_pretrained(folder)
    return str(folder)


def by_torchao(folder: Path) -> Any:
    torchao = pytest.importorskip("torchao.quantization")
    given = tf.TorchAoConfig(torchao.Int8WeightOnlyConfig())
    return tf.AutoModelForCausalLM.from_pretrained(saved(folder), quantization_config=given, dtype=torch.float32)


def by_bitsandbytes(folder: Path, bits: int) -> Any:
    pytest.importorskip("bitsandbytes")
    given = tf.BitsAndBytesConfig(load_in_8bit=True)
    if bits == 4:
        how: dict[str, Any] = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.float32}
        given = tf.BitsAndBytesConfig(load_in_4bit=True, **how)
    return tf.AutoModelForCausalLM.from_pretrained(
        saved(folder), quantization_config=given, device_map="cpu", dtype=torch.float32
    )


MAKERS = {
    "torchao": by_torchao,
    "bitsandbytes 4": lambda folder: by_bitsandbytes(folder, 4),
    "bitsandbytes 8": lambda folder: by_bitsandbytes(folder, 8),
}


def dequantised(model: Any) -> Any:
    """A plain model of the weights that the quantised ones stand for, by the quantiser's own functions."""
    plain = tf.AutoModelForCausalLM.from_config(config()).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if hasattr(value, "quant_state"):
                import bitsandbytes

                value = bitsandbytes.functional.dequantize_4bit(value.data, value.quant_state)
            elif not isinstance(value, torch.nn.Parameter) or type(value) is not torch.nn.Parameter:
                value = value.dequantize()
            plain.get_parameter(name).copy_(value)
    return plain


def passed(model: Any, artifacts: Any) -> tuple[Tensor, dict[str, Tensor]]:
    with ts.attach(model, *copy.deepcopy(artifacts)) as tuned:
        tuned.train()
        out = model(**tiny.batch(model)).logits
        out.float().log_softmax(-1)[..., 5].sum().backward()
        return out.detach(), {name: value.grad for name, value in tuned.named_parameters().items()}


@pytest.mark.parametrize("maker", ["torchao", "bitsandbytes 4"])
def test_outputs_and_gradients_are_those_on_the_dequantised_weights(maker: str, tmp_path: Path) -> None:
    model = MAKERS[maker](tmp_path)
    plain = dequantised(model)
    for arm in ARMS:
        artifacts = tiny.away(model, arm, 0)
        found, gradients = passed(model, artifacts)
        wanted, slopes = passed(plain, artifacts)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        for name, slope in slopes.items():
            assert slope.abs().max() > 0
            torch.testing.assert_close(gradients[name], slope, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_attached_counts_the_numbers_of_the_model_and_not_their_bytes(maker: str, tmp_path: Path) -> None:
    model = MAKERS[maker](tmp_path)
    plain = sum(value.numel() for value in tf.AutoModelForCausalLM.from_config(config()).parameters())
    with ts.attach(model, ts.LoRA(rank=2)) as tuned:
        assert f"beside the model's {plain:,}>" in repr(tuned)


def test_on_8_bit_maps_every_tensor_gets_a_gradient_and_a_lora_adds_its_formula(tmp_path: Path) -> None:
    """The maps themselves round what enters them, so that only what is added can be checked."""
    model = MAKERS["bitsandbytes 8"](tmp_path)
    for arm in ARMS:
        out, gradients = passed(model, tiny.away(model, arm, 0))
        assert out.isfinite().all()
        assert all(value.isfinite().all() and value.abs().max() > 0 for value in gradients.values())
    site, given = model.model.layers[0].self_attn.q_proj, torch.randn(2, 3, 64)
    (lora,) = tiny.away(model, "lora:rank=2,alpha=3,sites=attn.q", 0)
    bare = site(given)
    with ts.attach(model, lora):
        a, b = lora.tensors["decoder.0.self.q:a"], lora.tensors["decoder.0.self.q:b"]
        torch.testing.assert_close(site(given), bare + 1.5 * given @ a.T @ b.T, rtol=0, atol=1e-5)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_trainer_trains_on_it_and_what_is_saved_fits_it_alone(maker: str, tmp_path: Path) -> None:
    model = MAKERS[maker](tmp_path / "base")
    data = [{"input_ids": row, "labels": row} for row in tiny.ids(6, 6)]
    start = fingerprint(model)
    given = arguments(tmp_path / "run", max_steps=8, learning_rate=0.05, logging_steps=1, lr_scheduler_type="constant")
    with ts.attach(model, ts.LoRA(rank=2), ts.Prefix(length=3)) as tuned:
        with tuned.registered():
            trainer = tf.Trainer(model, given, train_dataset=data)
            trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert losses[-1] < losses[0]
        ts.save(tmp_path / "saved", tuned.artifacts, model=model)
        assert_fits(model, tuned, start)
    artifacts = ts.load(tmp_path / "saved")
    ts.attach(model, *artifacts).detach()
    plain = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    with pytest.raises(ts.UserError, match="made for another base model"):
        ts.attach(plain, *artifacts)


def assert_fits(model: Any, tuned: Attached, start: str) -> None:
    model.eval()
    with torch.no_grad():
        model(**tiny.batch(model))
    _FINGERPRINTS.clear()
    assert fingerprint(model) == start  # also where the maps were packed anew when the model ran
    with tuned.paused(), torch.no_grad():
        model(**tiny.batch(model))
    _FINGERPRINTS.clear()
    assert fingerprint(model) == start


@pytest.mark.parametrize("maker", MAKERS)
def test_what_changes_quantised_weights_is_refused(maker: str, tmp_path: Path) -> None:
    model = MAKERS[maker](tmp_path)
    with pytest.raises(ts.UserError, match=r"Full\(\) would change '.*q_proj.weight', which is quantised: use lora"):
        ts.attach(model, ts.Full())
    with pytest.raises(ts.UserError, match=r"cannot be merged into 'decoder.0.self.q', whose weight is quantised"):
        ts.merge(model, *tiny.away(model, "lora:rank=2", 0))


def test_a_4_bit_model_that_packed_itself_for_inference_is_not_trained(tmp_path: Path) -> None:
    model = MAKERS["bitsandbytes 4"](tmp_path)
    if not model.model.layers[0].self_attn.q_proj.support_avx512bf16_for_cpu:
        pytest.skip("bitsandbytes packs 4-bit maps only on processors with AVX512-BF16")
    with ts.attach(model, ts.LoRA(rank=2)) as tuned:
        with torch.no_grad():
            model(**tiny.batch(model))
        tuned.train()  # nothing was packed while attached
    with torch.no_grad():
        model(**tiny.batch(model))
    with (
        ts.attach(model, ts.LoRA(rank=2)) as tuned,
        pytest.raises(ts.UserError, match=r"was packed for inference by bitsandbytes .* load the model anew"),
    ):
        tuned.train()


@pytest.mark.parametrize("spec", [ts.LoRA(rank=2), ts.Soft(length=2), ts.Bias()])
def test_torch_s_own_quantised_modules_are_refused(spec: Any) -> None:
    model = torch.ao.quantization.quantize_dynamic(
        tiny.make("llama", dtype=torch.float32), {torch.nn.Linear}, dtype=torch.qint8
    )
    with pytest.raises(
        ts.UserError, match="passes no gradient and shows no weight: quantise the model with torchao or"
    ):
        ts.attach(model, spec)
    with (
        ts.attach(model, ts.Bank({"anna": spec})),
        pytest.raises(ts.UserError, match="passes no gradient and shows no weight"),
    ):
        model(**tiny.batch(model), rows=["anna", None])
