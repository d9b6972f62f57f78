"""The faults measured in peft and adapters, one test each: here they are not.

Where it is cheap, the installed peft is run beside it; should it have mended the fault, that is skipped and says so.
"""

import warnings
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor

import tunescope as ts
from tunescope.trial.budget import count

BOTH = ["t5", "bart", "mbart"]


def gradients(model: Any, *specs: Any, given: dict[str, Any] | None = None) -> dict[str, Tensor]:
    with ts.attach(model, *specs) as tuned:
        tuned.train()
        out = tiny.output(model, given or tiny.batch(model, "none"))
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        found = {name: leaf.grad for name, leaf in tuned.named_parameters().items()}
        for leaf in tuned.parameters():
            leaf.grad = None
    return found


def peft_prefix_gradient(model: Any, task: str, length: int, **inputs: Tensor) -> Tensor | None:
    peft = pytest.importorskip("peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = peft.get_peft_model(model, peft.PrefixTuningConfig(task_type=task, num_virtual_tokens=length))
        wrapped.train()
        inputs = inputs or {"input_ids": tiny.ids()}
        wrapped(**inputs)[0].square().sum().backward()
    return next(parameter for parameter in wrapped.parameters() if parameter.requires_grad).grad


@pytest.mark.parametrize("family", BOTH)
def test_1_every_layer_of_an_encoder_decoder_has_a_prefix_of_its_own(family: str) -> None:
    found = gradients(tiny.make(family), ts.Prefix(length=3))
    assert len(found) == 2 * 3 * 2  # layers, sites, keys and values
    values = list(found.values())
    for i, gradient in enumerate(values):
        assert gradient.abs().amax((-1, -2)).min() > 0
        assert all(not torch.equal(gradient, other) for other in values[:i] if other.shape == gradient.shape)
    assert count(tiny.make(family), [ts.Prefix(length=3)]).trained == sum(g.numel() for g in values)


def test_1_peft_leaves_half_of_it_without_a_gradient() -> None:
    config = tf.BartConfig(**{**tiny.BART_LIKE, "decoder_attention_heads": 3})  # it takes one shape for all layers
    model = tiny.build(tf.AutoModelForSeq2SeqLM, config, dtype=torch.float32)
    gradient = peft_prefix_gradient(model, "SEQ_2_SEQ_LM", 3, **tiny.batch(model, "none"))
    if gradient is None or (gradient.view(3, 4, -1).abs().amax((0, 2)) > 0).all():
        pytest.skip("this peft gives every slot a gradient")
    assert int((gradient.view(3, 4, -1).abs().amax((0, 2)) == 0).sum()) == 2


@pytest.mark.parametrize("family", BOTH)
def test_2_a_soft_prompt_counts_no_dead_rows(family: str) -> None:
    model = tiny.make(family)
    (gradient,) = gradients(model, ts.Soft(length=5)).values()
    assert gradient.shape == (5, 24)
    assert gradient.abs().amax(-1).min() > 0
    assert count(model, [ts.Soft(length=5)]).trained == 5 * 24


def test_2_peft_counts_twice_the_rows_it_uses() -> None:
    peft = pytest.importorskip("peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = peft.PromptTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=5)
        wrapped = peft.get_peft_model(tiny.make("t5", dtype=torch.float32), config)
        wrapped(**tiny.batch(tiny.make("t5"), "none")).logits.square().sum().backward()
    (leaf,) = (parameter for parameter in wrapped.parameters() if parameter.requires_grad)
    if leaf.shape[0] == 5:
        pytest.skip("this peft counts no dead rows")
    assert leaf.shape[0] == 10
    assert int((leaf.grad.abs().amax(-1) > 0).sum()) == 5


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "bart", "bert"])
def test_3_under_sdpa_the_prefix_and_all_earlier_tokens_are_seen(family: str, padding: str) -> None:
    model = tiny.make(family)
    assert model.config._attn_implementation == "sdpa"
    given = tiny.batch(model, padding)
    rows, last = torch.arange(2), torch.tensor([-1, -1])
    if "decoder_input_ids" not in given and padding == "right":
        last = torch.tensor(tiny.LENGTHS) - 1
    with torch.no_grad():
        plain = tiny.output(model, given)
        with ts.attach(model, ts.Prefix(length=30)):
            seen = tiny.output(model, given)
            text = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
            first = torch.zeros(2, dtype=torch.long)
            if text == "input_ids" and padding == "left":
                first = 7 - torch.tensor(tiny.LENGTHS)
            other = {**given, text: given[text].clone()}
            other[text][rows, first] = (other[text][rows, first] + 7) % 90 + 3
            changed = tiny.output(model, other)
    assert (seen - plain)[rows, last].abs().amax(-1).min() > 1e-4
    assert (seen - changed)[rows, last].abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "llama", "t5"])
def test_4_checkpointing_switched_on_at_any_time_keeps_the_prefix_s_gradients(family: str) -> None:
    given: dict[str, Any] = tiny.batch(tiny.make(family))
    if family not in ("bert", "roberta", "distilbert"):
        given["use_cache"] = (
            False  # as checkpointing has it: a cache lays keys out otherwise, and sums in another order
        )
    off = gradients(tiny.make(family).train(), ts.Prefix(length=3), given=given)
    before = tiny.make(family).train()
    before.gradient_checkpointing_enable()
    after = tiny.make(family).train()
    with ts.attach(after, ts.Prefix(length=3)) as tuned:
        after.gradient_checkpointing_enable()  # as a trainer does
        tuned.train()
        out = tiny.output(after, given)
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    on = gradients(before, ts.Prefix(length=3), given=given)
    for name, gradient in off.items():
        assert gradient.abs().max() > 0
        later = tuned.named_parameters()[name].grad
        assert torch.equal(on[name], gradient), name
        assert torch.equal(later, gradient), name


def test_4_peft_drops_an_encoder_s_prefix() -> None:
    peft = pytest.importorskip("peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tiny.make("bert", dtype=torch.float32)
        config = peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
        wrapped = peft.get_peft_model(model, config)
        wrapped.train()
        wrapped.base_model.gradient_checkpointing_enable()
        (leaf,) = (parameter for parameter in wrapped.parameters() if parameter.requires_grad)
        try:
            wrapped(input_ids=tiny.ids())[0].square().sum().backward()
        except Exception as error:
            pytest.skip(f"this peft does not run so far: {type(error).__name__}")
    if leaf.grad is not None:
        pytest.skip("this peft keeps the prefix")
    assert leaf.grad is None


def test_5_rows_are_never_asked_to_choose_artifacts_in_silence() -> None:
    """There is one answer to which artifact a row gets: all that are attached. Nothing here takes a row's choice.

    transformers hands unknown keywords of a model's call on to its attention without a word, so peft's `adapter_names=`
    is swallowed by the model itself; `generate` refuses it, and so does attach.
    """
    model = tiny.make("gpt2")
    given = tiny.batch(model, "none")
    with ts.attach(model, ts.Prefix(length=2)), torch.no_grad():
        with pytest.raises(ValueError, match="adapter_names"):
            model.generate(**given, adapter_names=["a", "b"], max_new_tokens=2, pad_token_id=0)
        assert torch.equal(model(**given, adapter_names=["a", "b"]).logits, model(**given).logits)
    with pytest.raises(TypeError, match="adapter_names"):
        ts.attach(model, ts.Prefix(length=2), adapter_names=["a", "b"])  # type: ignore[call-arg]


@pytest.mark.parametrize("family", ["gpt2", "t5", "bert"])
def test_6_lora_and_a_prefix_train_and_save_together(family: str, tmp_path: Any) -> None:
    model = tiny.make(family)
    given = tiny.batch(model)
    with ts.attach(model, ts.LoRA(rank=2), ts.Prefix(length=3)) as tuned:
        optimizer = torch.optim.AdamW(tuned.train().parameters(), lr=0.01)
        start = {name: leaf.detach().clone() for name, leaf in tuned.named_parameters().items()}
        for _ in range(2):
            optimizer.zero_grad()
            tiny.output(model, given).square().mean().backward()
            optimizer.step()
        assert all(not torch.equal(leaf, start[name]) for name, leaf in tuned.named_parameters().items())
        ts.save(tmp_path / "both", tuned.artifacts, model=model)
        with torch.no_grad():
            expected = tiny.output(model, given)
    again = ts.load(tmp_path / "both")
    assert [type(artifact.spec) for artifact in again] == [ts.LoRA, ts.Prefix]
    with ts.attach(model, *again), torch.no_grad():
        assert torch.equal(tiny.output(model, given), expected)


def test_6_peft_nested_freezes_the_first() -> None:
    peft = pytest.importorskip("peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = peft.get_peft_model(tiny.make("gpt2", dtype=torch.float32), peft.LoraConfig(task_type="CAUSAL_LM"))
        config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
        try:
            outer = peft.get_peft_model(inner, config)
        except Exception as error:
            pytest.skip(f"this peft refuses to nest: {type(error).__name__}")
    trained = [name for name, parameter in outer.named_parameters() if parameter.requires_grad]
    if any("lora" in name for name in trained):
        pytest.skip("this peft trains both")
    assert len(trained) == 1
