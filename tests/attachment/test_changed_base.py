"""What is changed under an attached context acts in the next call, however it was changed: kept keys are made anew.

The oracle runs the changed model bare: a soft prompt's vectors stand in front of the text's embeddings.
"""

from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

import tunescope as ts
from tunescope.attachment import context_keys
from tunescope.attachment.guards import changes


def _maps(model: PreTrainedModel) -> Any:
    return model.model.layers[0].self_attn.k_proj


def in_place(model: PreTrainedModel) -> None:
    with torch.no_grad():
        _maps(model).weight.mul_(3)


def through_data(model: PreTrainedModel) -> None:
    _maps(model).weight.data.mul_(3)


def other_data(model: PreTrainedModel) -> None:
    _maps(model).weight.data = _maps(model).weight * 3


def other_parameter(model: PreTrainedModel) -> None:
    _maps(model).weight = nn.Parameter(_maps(model).weight * 3)


def other_module(model: PreTrainedModel) -> None:
    made = nn.Linear(*reversed(_maps(model).weight.shape), bias=False).to(torch.float64)
    model.model.layers[0].self_attn.k_proj = made


def other_activation(model: PreTrainedModel) -> None:
    model.model.layers[0].mlp.act_fn = nn.Tanh()


def a_buffer(model: PreTrainedModel) -> None:
    model.model.rotary_emb.inv_freq.mul_(0.5)


def a_hook(model: PreTrainedModel) -> None:
    model.model.layers[0].register_forward_hook(lambda _module, _args, out: out * 2)


def a_forward(model: PreTrainedModel) -> None:
    layer, forward = _maps(model), _maps(model).forward
    layer.forward = lambda x: forward(x) * 3


CHANGES = [in_place, through_data, other_data, other_parameter, other_module, other_activation]
CHANGES += [a_buffer, a_hook, a_forward]


def in_front(model: PreTrainedModel, rows: Tensor, text: Tensor) -> Tensor:
    """The bare model's logits of the text, behind (n, width) embeddings."""
    embedded = model.get_input_embeddings()(text)
    given = torch.cat([rows[None].expand(len(text), -1, -1), embedded], 1)
    found: Tensor = model(inputs_embeds=given).logits[:, len(rows) :]
    return found


@pytest.mark.parametrize("is_banked", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_change_of_the_base_acts_on_a_soft_prompt_from_the_next_call_on(
    change: Callable[[PreTrainedModel], None], is_banked: bool
) -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    (rows,) = artifact.tensors.values()
    given = {"rows": ["a", "a"]} if is_banked else {}
    with ts.attach(model, ts.Bank({"a": [artifact]}) if is_banked else artifact):
        before = model(input_ids=text, **given).logits
        change(model)
        after = model(input_ids=text, **given).logits
    want = in_front(model, rows, text)
    torch.testing.assert_close(after, want, rtol=0, atol=1e-11)
    assert (before - want).abs().max() > 1e-4


@pytest.mark.parametrize("change", [in_place, through_data, other_parameter, other_module])
@torch.no_grad()
def test_and_on_layer_inputs_whose_keys_its_maps_make(change: Callable[[PreTrainedModel], None]) -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    (artifact,) = tiny.away(model, "inputs:length=3", 1)
    with ts.attach(model, artifact):
        before = model(input_ids=text).logits
        change(model)
        after = model(input_ids=text).logits
    shape = model.config.num_key_value_heads, model.config.hidden_size // model.config.num_attention_heads
    vectors = {name.removesuffix(".inputs"): value for name, value in artifact.tensors.items()}
    made = {}  # W_K s and W_V s, in the place of a prefix's keys and values
    for index, layer in enumerate(model.model.layers):
        x = vectors[f"decoder.{index}.self"]
        for kind, mapped in (("key", layer.self_attn.k_proj), ("value", layer.self_attn.v_proj)):
            made[f"decoder.{index}.self.{kind}"] = mapped(x).view(len(x), *shape).transpose(0, 1)
    with ts.attach(model, ts.Artifact(ts.Prefix(length=3), made)):
        want = model(input_ids=text).logits
    torch.testing.assert_close(after, want, rtol=0, atol=1e-11)
    assert (before - want).abs().max() > 1e-4


@pytest.mark.parametrize("arm", ["prefix:length=3", "soft:length=3", "inputs:length=3", "infix:length=3"])
@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_what_is_written_into_an_artifact_through_data_acts_too(arm: str, is_banked: bool) -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    artifacts = tiny.away(model, arm, 1)
    given = {"rows": ["a", "a"]} if is_banked else {}
    with ts.attach(model, *((ts.Bank({"a": artifacts}),) if is_banked else artifacts)):
        before = model(input_ids=text, **given).logits
        for value in artifacts[0].tensors.values():
            value.data.mul_(2)
        after = model(input_ids=text, **given).logits
    with ts.attach(model, *artifacts):
        want = model(input_ids=text).logits
    torch.testing.assert_close(after, want, rtol=0, atol=1e-11)
    assert (before - want).abs().max() > 1e-4


@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_a_context_is_run_once_while_nothing_changes(monkeypatch: pytest.MonkeyPatch, is_banked: bool) -> None:
    model, text, runs = tiny.make("llama"), tiny.ids(2), []
    made = context_keys.run_tokens
    monkeypatch.setattr(context_keys, "run_tokens", lambda *of: runs.append(of) or made(*of))
    soft, lora = tiny.away(model, "soft:length=3", 1), tiny.away(model, "lora:rank=2", 2)
    given = {"rows": ["a", "b"]} if is_banked else {}
    with ts.attach(model, *((ts.Bank({"a": soft, "b": lora}),) if is_banked else [*soft, *lora])):
        for _ in range(2):
            model.generate(input_ids=text, max_new_tokens=3, do_sample=False, **given)
            model(input_ids=text[:, 1:], **given)
            if is_banked:  # other deltas act, and their hooks are no change
                model(input_ids=text, rows=["b", "a"])
        assert len(runs) == 1
        through_data(model)
        model(input_ids=text, **given)
        assert len(runs) == 2


def test_a_model_that_was_changed_to_another_type_makes_keys_of_that_type() -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    with torch.no_grad(), ts.attach(model, artifact):
        model(input_ids=text)
        model.to(torch.float32)
        after = model(input_ids=text).logits
        assert after.dtype == torch.float32
        (rows,) = artifact.tensors.values()
    with torch.no_grad():
        torch.testing.assert_close(after, in_front(model, rows.float(), text), rtol=0, atol=1e-5)


def test_samples_are_views_of_whatever_lies_behind_a_tensor() -> None:
    whole = torch.arange(1000.0).view(20, 50)
    cases = [whole, whole.t(), whole[:, 3:5], whole[7], whole[0, 0], whole[:1, :1].expand(9, 9), torch.zeros(3, 0)]
    groups = changes._samples([*cases, whole.long(), torch.empty(4, device="meta")])
    (samples, others) = groups
    assert len(samples) == 6 and len(others) == 1
    assert [len(one) for one in samples] == [64, 64, 40, 50, 1, 64]
    watch = changes.Watch(None)
    first = watch.trace(cases, looks_inside=True)
    assert watch.trace(cases, looks_inside=True) == first
    whole.data.add_(1)
    assert watch.trace(cases, looks_inside=False) == first != watch.trace(cases, looks_inside=True)
