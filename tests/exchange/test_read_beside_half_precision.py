"""Files of float32 read for a model in half precision: what was tuned keeps all of its digits."""

from pathlib import Path
from typing import Any

import peft
import peftly
import pytest
import theirs
import tiny
import torch
import transformers as tf
from safetensors.torch import load_file
from torch import Tensor

from tunescope.exchange import convert
from tunescope.exchange.adapters.config import TENSORS as TENSORS_OF_ADAPTERS
from tunescope.exchange.peft.config import TENSORS

HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def read(config: Any, dtype: torch.dtype, folder: Path, whole: Any = None) -> tuple[dict[str, Tensor], Any]:
    """The file's tensors, and what is read of it for the same model in that precision."""
    model = tiny.make("llama", dtype=torch.float32) if whole is None else whole
    tensors = load_file(peftly.written(peftly.wrapped(model, config), folder) / TENSORS)
    assert {value.dtype for value in tensors.values()} == {torch.float32}
    base = model if whole is None else whole.base_model
    return tensors, convert.read(folder, form="peft", model=base.to(dtype)).artifacts


@HALF
def test_factors_of_lora(dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny.make("llama")
    tensors, (artifact,) = read(peftly.lora(model, r=2, target_modules=["q_proj"]), dtype, tmp_path)
    for factor in "AB":
        own = artifact.tensors[f"decoder.1.self.q:{factor.lower()}"]
        theirs = tensors[f"base_model.model.model.layers.1.self_attn.q_proj.lora_{factor}.weight"]
        assert own.dtype == torch.float32 and torch.equal(own, theirs)


@HALF
def test_factors_that_are_stored_in_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    """As trainers of large models save them, read for a model in any other."""
    model = tiny.make("llama")
    folder = peftly.written(peftly.wrapped(model, peftly.lora(model, r=2, target_modules=["q_proj"])), tmp_path)
    stored = {name: value.to(dtype) for name, value in load_file(folder / TENSORS).items()}
    peftly.retensored(folder, stored)
    for own in (torch.float32, torch.float64):
        (artifact,) = convert.read(folder, form="peft", model=tiny.make("llama", dtype=own)).artifacts
        a = artifact.tensors["decoder.0.self.q:a"]
        whole = stored["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"]
        assert a.dtype == own and torch.equal(a, whole.to(own))


@HALF
def test_keys_values_and_rows_of_prompts(dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny.make("llama")
    tensors, (artifact,) = read(peftly.prefix(model, 3), dtype, tmp_path / "prefix")
    entries = tensors["prompt_embeddings"].view(3, 4, 2, 6)
    assert torch.equal(artifact.tensors["decoder.1.self.value"], entries[:, 3].transpose(0, 1))
    tensors, (artifact,) = read(peftly.prompt(model, 3), dtype, tmp_path / "prompt")
    assert torch.equal(artifact.tensors["embeddings"], tensors["prompt_embeddings"])


@HALF
def test_whole_weights_and_tokens(dtype: torch.dtype, tmp_path: Path) -> None:
    model, name = tiny.make("llama"), "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"
    config = peftly.lora(
        model, r=2, target_modules=["q_proj"], modules_to_save=["norm"], trainable_token_indices=[5, 7]
    )
    tensors, (norm, tokens, _) = read(config, dtype, tmp_path)
    base = tiny.make("llama", dtype=torch.float32).to(dtype).model
    for own, before, after in (
        (norm.tensors["norm.weight"], base.norm.weight, tensors["base_model.model.model.norm.weight"]),
        (tokens.tensors["embed_tokens.weight"], base.embed_tokens.weight[[5, 7]], tensors[name]),
    ):
        assert own.dtype == torch.float32 and torch.equal(own, after - before.detach().float())


@HALF
def test_a_head_for_classes(dtype: torch.dtype, tmp_path: Path) -> None:
    config = tiny.configs()["llama"]
    config.num_labels, config.pad_token_id = 3, 0
    whole = tiny.build(tf.AutoModelForSequenceClassification, config, dtype=torch.float32)
    how = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"])
    tensors, (_, head) = read(how, dtype, tmp_path, whole)
    assert torch.equal(head.tensors["pooled:weight"], tensors["base_model.model.score.weight"])


@HALF
@pytest.mark.parametrize(
    ("case", "ours", "name"),
    [
        ("lora", "decoder.1.self.v:a", "transformer.h.1.attn.c_attn.loras.lora.lora_A"),
        ("houlsby", "decoder.1.ffn:down", "transformer.h.1.output_adapters.adapters.houlsby.adapter_down.0.weight"),
        ("prefix_flat", "decoder.1.self.value", "prefix_tuning.prefix_tunings.prefix_flat.self_prefix.control_trans"),
    ],
)
def test_what_the_adapters_library_wrote(case: str, ours: str, name: str, dtype: torch.dtype) -> None:
    folder = theirs.HERE / "gpt2" / case
    whole = next(value for key, value in load_file(folder / TENSORS_OF_ADAPTERS).items() if key.endswith(name))
    if case == "lora":
        whole = whole[2:]  # of the two that are chosen in the fused map the second
    if case == "prefix_flat":
        whole = whole.view(3, 4, 2, 4)[:, 3].transpose(0, 1)
    (artifact,) = theirs.read("gpt2", folder, dtype).artifacts
    assert artifact.tensors[ours].dtype == torch.float32 and torch.equal(artifact.tensors[ours], whole)
