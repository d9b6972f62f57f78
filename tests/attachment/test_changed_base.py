"""What is changed under an attached context acts in the next call, however it was changed: kept keys are made anew.

The oracle runs the changed model bare: a soft prompt's vectors stand in front of the text's embeddings.
"""

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor, nn
from transformers import Phi3Config, Phi3ForCausalLM, PreTrainedModel, T5EncoderModel

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


def _counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[Any]:
    """The calls of a module's function from now on."""
    calls: list[Any] = []
    function = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *of: calls.append(of) or function(*of))
    return calls


@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_a_context_is_run_once_while_nothing_changes(monkeypatch: pytest.MonkeyPatch, is_banked: bool) -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    runs = _counted(monkeypatch, context_keys, "run_tokens")
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
    first = watch.trace(cases, begins=True)
    assert watch.trace(cases, begins=True) == first
    whole.data.add_(1)
    assert watch.trace(cases, begins=False) == first != watch.trace(cases, begins=True)


@torch.no_grad()
def test_what_has_gone_is_not_taken_for_what_came_in_its_place() -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    mlp = model.model.layers[0].mlp
    plain = type(mlp).forward

    def scaled(by: float) -> None:
        mlp.forward = lambda x: plain(mlp, x) * by

    with ts.attach(model, artifact):
        for by in (1.0, 3.0):  # the second may lie where the first one lay
            scaled(by)
            after = model(input_ids=text).logits
            del mlp.forward
        for other in (nn.Tanh, nn.Sigmoid):
            del mlp.act_fn
            mlp.act_fn = other()
            acting = model(input_ids=text).logits
    (rows,) = artifact.tensors.values()
    torch.testing.assert_close(acting, in_front(model, rows, text), rtol=0, atol=1e-11)
    mlp.act_fn = nn.SiLU()
    scaled(3.0)
    torch.testing.assert_close(after, in_front(model, rows, text), rtol=0, atol=1e-11)


@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_a_hook_that_does_something_else_each_time_is_asked_each_time(is_banked: bool) -> None:
    model, text, strength = tiny.make("llama"), tiny.ids(2), [0.0]
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    model.model.layers[0].register_forward_hook(lambda _module, _args, out: out + strength[0])
    given = {"rows": ["a", "a"]} if is_banked else {}
    with ts.attach(model, ts.Bank({"a": [artifact]}) if is_banked else artifact):
        for strength[0] in (0.0, 2.0):
            after = model(input_ids=text, **given).logits
    (rows,) = artifact.tensors.values()
    torch.testing.assert_close(after, in_front(model, rows, text), rtol=0, atol=1e-11)


@pytest.mark.parametrize("part", ["whole", "layers"])
@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_keys_of_a_pass_with_dropout_are_not_kept(is_banked: bool, part: str) -> None:
    model, text = _with_dropout(), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    given = {"rows": ["a", "a"]} if is_banked else {}
    with ts.attach(model, ts.Bank({"a": [artifact]}) if is_banked else artifact):
        (model if part == "whole" else model.model.layers).train()
        model(input_ids=text, **given)
        model.eval()
        after = model(input_ids=text, **given).logits
    (rows,) = artifact.tensors.values()
    torch.testing.assert_close(after, in_front(model, rows, text), rtol=0, atol=1e-11)


def _with_dropout() -> PreTrainedModel:
    model = tiny.make("llama")
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    return model


def test_an_untuned_row_of_a_bank_follows_its_base_while_another_is_tuned(tmp_path: Path) -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    (soft,) = tiny.away(model, "soft:length=3", 1)
    ts.save(tmp_path / "soft", [soft], model=model)
    bank = ts.Bank({"kept": tmp_path / "soft", "tuned": tiny.away(model, "lora:rank=2", 2)})
    with ts.attach(model, bank) as tuned:
        tuned.train()
        model(input_ids=text, rows=["tuned", "kept"])
        in_place(model)
        after = model(input_ids=text, rows=["tuned", "kept"]).logits[1].detach()
    (rows,) = soft.tensors.values()
    with torch.no_grad():
        torch.testing.assert_close(after, in_front(model, rows, text)[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_an_adapter_of_peft_that_is_switched_off_later_acts_no_more(is_banked: bool) -> None:
    peft = pytest.importorskip("peft")
    model, text = tiny.make("llama"), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    given = {"rows": ["a", "a"]} if is_banked else {}
    adapter = peft.LoraConfig(r=2, target_modules=["k_proj"], init_lora_weights=False)
    with ts.attach(model, ts.Bank({"a": [artifact]}) if is_banked else artifact):
        model.add_adapter(adapter)
        model.double()
        model(input_ids=text, **given)
        model.disable_adapters()
        after = model(input_ids=text, **given).logits
    (rows,) = artifact.tensors.values()
    torch.testing.assert_close(after, in_front(model, rows, text), rtol=0, atol=1e-11)
    model.enable_adapters()
    lowered = ts.lower(model, artifact)
    model.disable_adapters()
    with pytest.raises(ts.UserError, match="lowered under other weights"):
        ts.attach(model, *lowered)


def test_gradients_that_are_asked_of_the_base_reach_it_through_the_context() -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    (rows,) = artifact.tensors.values()
    weight = _maps(model).weight
    with ts.attach(model, artifact):
        with torch.no_grad():
            model(input_ids=text)
        weight.requires_grad_(True)
        (got,) = torch.autograd.grad(model(input_ids=text).logits.square().sum(), weight)
    (want,) = torch.autograd.grad(in_front(model, rows, text).square().sum(), weight)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)  # its norms are computed in float32


@torch.no_grad()
def test_lowered_keys_are_refused_once_their_base_has_changed_and_hold_no_dropout() -> None:
    model, text = _with_dropout().train(), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    lowered = ts.lower(model, artifact)
    model.eval()
    (rows,) = artifact.tensors.values()
    with ts.attach(model, *lowered):
        torch.testing.assert_close(model(input_ids=text).logits, in_front_of(model, rows, text), rtol=0, atol=1e-11)
        in_place(model)
        with pytest.raises(ts.UserError, match="lowered under other weights"):
            model(input_ids=text)


def in_front_of(model: PreTrainedModel, rows: Tensor, text: Tensor) -> Tensor:
    """`in_front` of a model that has something attached, which a copy of its weights has not."""
    bare = tiny.make("llama")
    bare.load_state_dict(model.state_dict())
    return in_front(bare, rows, text)


@torch.no_grad()
def test_a_delta_of_attention_that_is_written_through_data_acts() -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    shown = ts.Artifact(ts.Text(text="x"), {"ids": torch.tensor([5, 6, 7, 8])})
    given = {"output_start": torch.tensor([3, 3])}
    with ts.attach(model, shown, ts.Reweight(anchors=("1", "3"))) as tuned:
        delta = tuned.artifacts[1]
        before = model(input_ids=text, **given).logits
        for value in delta.tensors.values():
            value.data.add_(1.0)
        after = model(input_ids=text, **given).logits
    with ts.attach(model, shown, delta):
        want = model(input_ids=text, **given).logits
    torch.testing.assert_close(after, want, rtol=0, atol=0)
    assert (before - after).abs().max() > 1e-4


def test_a_body_that_two_models_share_has_one_thing_attached_at_a_time() -> None:
    model, other = tiny.make("llama"), tiny.make("llama", seed=1)
    other.model = model.model
    with ts.attach(model, ts.LoRA(rank=2)):
        for one in (other, model.model, model):
            with pytest.raises(ts.UserError, match="has artifacts attached already"):
                ts.attach(one, ts.LoRA(rank=2))
    with ts.attach(model.model, ts.LoRA(rank=2)), pytest.raises(ts.UserError, match="has artifacts attached already"):
        ts.attach(model, ts.LoRA(rank=2))
    ts.attach(other, ts.LoRA(rank=2)).detach()


@pytest.mark.parametrize("arm", ["soft:length=3", "lowered"])
@torch.no_grad()
def test_a_text_whose_positions_are_rescaled_behind_a_context_is_refused(arm: str) -> None:
    config = Phi3Config(
        vocab_size=tiny.VOCAB,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=0,
        max_position_embeddings=64,
        original_max_position_embeddings=16,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4,
            "original_max_position_embeddings": 16,
        },
    )
    model = Phi3ForCausalLM(config).double().eval()
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    (rows,) = artifact.tensors.values()
    within, beyond = tiny.ids(2, 13), tiny.ids(2, 14)
    attached = ts.lower(model, artifact) if arm == "lowered" else [artifact]
    with ts.attach(model, *attached):
        after = model(input_ids=within).logits
        padded = torch.nn.functional.pad(within, (4, 0))
        mask = torch.nn.functional.pad(torch.ones_like(within), (4, 0))
        left = model(input_ids=padded, attention_mask=mask).logits[:, 4:]
        with pytest.raises(ts.UserError, match="turns its positions otherwise from 17 tokens on"):
            model(input_ids=beyond)
    want = in_front(model, rows, within)
    for got in (after, left):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11)
    with ts.attach(model, ts.Prefix(length=3)):
        model(input_ids=beyond)


@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_a_write_through_data_behind_one_that_was_seen_amid_a_text_is_told(is_banked: bool) -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    given = {"rows": ["a", "a"]} if is_banked else {}
    with ts.attach(model, ts.Bank({"a": [artifact]}) if is_banked else artifact):
        begun = model(input_ids=text, use_cache=True, **given)
        in_place(model)
        model(input_ids=text[:, :1], past_key_values=begun.past_key_values, **given)
        through_data(model)
        after = model(input_ids=text, **given).logits
    (rows,) = artifact.tensors.values()
    torch.testing.assert_close(after, in_front(model, rows, text), rtol=0, atol=1e-11)


@pytest.mark.parametrize("change", [in_place, other_data, other_module, a_forward])
@pytest.mark.parametrize("is_banked", [False, True])
@torch.no_grad()
def test_amid_a_text_what_is_written_in_place_acts_at_once_and_the_rest_from_the_next_text_on(
    change: Callable[[PreTrainedModel], None], is_banked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, text = tiny.make("llama"), tiny.ids(2)
    walks, runs = _counted(monkeypatch, changes, "_walked"), _counted(monkeypatch, context_keys, "run_tokens")
    (artifact,) = tiny.away(model, "soft:length=3", 1)
    given = {"rows": ["a", "a"]} if is_banked else {}
    with ts.attach(model, ts.Bank({"a": [artifact]}) if is_banked else artifact):
        model.generate(input_ids=text, max_new_tokens=4, do_sample=False, **given)
        assert len(walks) == len(runs) == 1
        begun = model(input_ids=text, use_cache=True, **given)
        change(model)
        model(input_ids=text[:, :1], past_key_values=begun.past_key_values, **given)
        assert len(runs) == 1 + (change in (in_place, other_data))
        after = model(input_ids=text, **given).logits
    (rows,) = artifact.tensors.values()
    torch.testing.assert_close(after, in_front(model, rows, text), rtol=0, atol=1e-11)


def _hooked(model: PreTrainedModel) -> None:
    model.model.layers[0].register_forward_hook(lambda *_: None)  # it only looks
    in_place(model)


def _trained_meanwhile(model: PreTrainedModel) -> None:
    model.train()
    model(input_ids=tiny.ids(2))
    in_place(model)
    model.eval()


@pytest.mark.parametrize("is_banked", [False, True])
@pytest.mark.parametrize("change", [in_place, _hooked, _trained_meanwhile])
@pytest.mark.parametrize("is_called", [False, True])
@torch.no_grad()
def test_lowered_keys_are_refused_however_and_whenever_their_base_changed(
    change: Callable[[PreTrainedModel], None], is_called: bool, is_banked: bool
) -> None:
    if is_banked and change is _trained_meanwhile:
        pytest.skip("it calls the model without rows")
    model, text = tiny.make("llama"), tiny.ids(2)
    lowered = ts.lower(model, *tiny.away(model, "soft:length=3", 1))
    given = {"rows": ["a", "a"]} if is_banked else {}
    with ts.attach(model, *([ts.Bank({"a": lowered})] if is_banked else lowered)):
        if is_called:
            model(input_ids=text, **given)
        change(model)
        for _ in range(2):
            with pytest.raises(ts.UserError, match=r"lowered under other weights|made for another base"):
                model(input_ids=text, **given)


@pytest.mark.parametrize("arm", ["soft:length=3", "prefix:length=3"])
def test_a_call_that_torch_func_transforms_has_the_gradients_of_autograd(arm: str) -> None:
    model, text = tiny.make("llama"), tiny.ids(1)
    embedded = model.get_input_embeddings()(text).detach()

    def loss(given: Tensor) -> Tensor:
        found: Tensor = model(inputs_embeds=given).logits.square().sum()
        return found

    with ts.attach(model, *tiny.away(model, arm, 1)):
        got = torch.func.grad(loss)(embedded)
        (want,) = torch.autograd.grad(loss(embedded.requires_grad_()), embedded)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_what_a_text_began_with_is_not_held_when_it_has_gone() -> None:
    model = tiny.make("llama")
    with ts.attach(model, *tiny.away(model, "soft:length=3", 1)):
        model(input_ids=tiny.ids(2))
        gone = weakref.ref(_maps(model).weight.untyped_storage())
        _maps(model).weight.data = _maps(model).weight * 3
        gc.collect()
        assert gone() is None


@torch.no_grad()
def test_keys_are_kept_beside_an_adapter_of_peft_and_a_hook_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    peft = pytest.importorskip("peft")
    model, text = tiny.make("llama"), tiny.ids(2)
    runs = _counted(monkeypatch, context_keys, "run_tokens")
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["k_proj"], init_lora_weights=False))
    model.double().eval()
    model.model.register_forward_hook(lambda *_: None)
    with ts.attach(model, *tiny.away(model, "soft:length=3", 1)):
        model.generate(input_ids=text, max_new_tokens=3, do_sample=False)
        model(input_ids=text)
    assert len(runs) == 1


def test_a_part_that_two_models_share_has_one_thing_attached_at_a_time() -> None:
    model = tiny.make("t5")
    for part in (T5EncoderModel(copy.deepcopy(model.config)), model.encoder):
        if part is not model.encoder:
            part.encoder = model.encoder
        with ts.attach(model, ts.Prefix(length=2)), pytest.raises(ts.UserError, match="artifacts attached already"):
            ts.attach(part, ts.Prefix(length=2))
