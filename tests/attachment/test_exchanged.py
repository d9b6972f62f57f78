"""Other tensors in the place of those of an attached artifact act, or are refused."""

from typing import Any

import pytest
import tiny
import torch

import tunescope as ts
from tunescope.errors import UserError

IDS = tiny.ids(2, 6)
SAYS = r"^Other tensors were put in the place of those of .* while it is attached, and would not act\. Copy into them"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=IDS).logits
    return out


def others(artifact: ts.Artifact) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(7)
    made = {name: torch.randn(value.shape, generator=draw) for name, value in artifact.tensors.items()}
    return {name: value + made[name].to(value) for name, value in artifact.tensors.items()}


@pytest.mark.parametrize("arm", ["lora:rank=2", "adapter:bottleneck=2"])
def test_others_at_a_site_are_refused_by_the_next_pass_the_optimizer_and_save(arm: str, tmp_path: Any) -> None:
    model = tiny.make("llama")
    with ts.attach(model, *tiny.away(model, arm, 0)) as tuned:
        own = tuned.artifacts
        own[0].tensors.update(others(own[0]))
        with pytest.raises(UserError, match=SAYS):
            logits(model)
        with pytest.raises(UserError, match=SAYS):
            tuned.parameters()
        with pytest.raises(UserError, match=SAYS):
            ts.save(tmp_path / "out", own, model=model)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arm", ["lora:rank=2", "prefix:length=2", "soft:length=2", "bias"])
def test_another_dict_is_refused_and_acts_once_it_is_attached_anew(arm: str) -> None:
    model = tiny.make("llama") if arm != "bias" else tiny.make("gpt2")
    with tiny.Float64(), ts.attach(model, *tiny.away(model, arm, 0)) as tuned:
        before, own = logits(model), tuned.artifacts
        own[0].tensors = others(own[0])
        with pytest.raises(UserError, match=SAYS):
            logits(model)
        with tuned.paused():
            pass
        assert (logits(model) - before).abs().max() > 1e-3
    with tiny.Float64(), ts.attach(model, *own):
        assert (logits(model) - before).abs().max() > 1e-3


@pytest.mark.parametrize("arm", ["prefix:length=2", "soft:length=2", "bias"])
def test_others_in_the_dict_of_a_context_or_a_parameter_act(arm: str) -> None:
    model = tiny.make("gpt2")
    with tiny.Float64(), ts.attach(model, *tiny.away(model, arm, 0)) as tuned:
        before, own = logits(model), tuned.artifacts
        own[0].tensors.update(others(own[0]))
        found = logits(model)
    assert (found - before).abs().max() > 1e-3
    with tiny.Float64(), ts.attach(model, *own):
        torch.testing.assert_close(logits(model), found, rtol=0, atol=1e-12)


def test_what_is_copied_into_them_acts() -> None:
    model = tiny.make("llama")
    with tiny.Float64(), ts.attach(model, *tiny.away(model, "lora:rank=2", 0)) as tuned:
        before = logits(model)
        for value in tuned.parameters():
            value.data.copy_(value + 0.3)
        assert (logits(model) - before).abs().max() > 1e-3


@pytest.mark.parametrize("arm", ["lora:rank=2", "adapter:bottleneck=2", "bias", "prefix:length=2", "soft:length=2"])
def test_in_a_bank_others_of_a_delta_are_refused_and_those_of_a_context_act(arm: str) -> None:
    model = tiny.make("gpt2")
    (own,), (other,) = (tiny.away(model, arm, seed) for seed in (0, 1))
    with tiny.Float64(), torch.no_grad(), ts.attach(model, ts.Bank({"a": own, "b": other})) as bank:
        asked = {"input_ids": IDS, "rows": ["a", "b"]}
        before = model(**asked).logits
        own.tensors.update(others(own))
        if arm.startswith(("prefix", "soft")):
            found = model(**asked).logits
        else:
            with pytest.raises(UserError, match=SAYS):
                model(**asked)
            bank.bank.remove("a")
            bank.bank.add("a", own)
            found = model(**asked).logits
    assert (found - before)[0].abs().max() > 1e-3
    torch.testing.assert_close(found[1], before[1], rtol=0, atol=1e-12)
    with tiny.Float64(), ts.attach(model, own):
        torch.testing.assert_close(found[0], logits(model)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("arm", ["lora:rank=2", "prefix:length=2"])
def test_in_a_bank_another_dict_is_refused(arm: str) -> None:
    model = tiny.make("gpt2")
    (own,) = tiny.away(model, arm, 0)
    with tiny.Float64(), ts.attach(model, ts.Bank({"a": own})):
        model(input_ids=IDS, rows=["a", None])
        own.tensors = others(own)
        with pytest.raises(UserError, match=SAYS):
            model(input_ids=IDS, rows=["a", None])
        model(input_ids=IDS, rows=[None, None])


@pytest.mark.parametrize("arm", ["full", "bias"])
@pytest.mark.parametrize("trains", [False, True])
def test_other_parameters_in_the_place_of_changed_ones_are_refused(arm: str, trains: bool) -> None:
    model = tiny.make("gpt2")
    others = {name: value.detach() + 0.1 for name, value in model.named_parameters()}
    with tiny.Float64(), torch.no_grad(), ts.attach(model, *tiny.away(model, arm, 0)) as tuned:
        before = logits(model)
        tuned.train(trains)
        with pytest.raises(UserError, match=r"put in the place of the parameter .* by functional_call perhaps"):
            torch.func.functional_call(model, others, (), {"input_ids": IDS})
        torch.testing.assert_close(logits(model), before, rtol=0, atol=1e-12)


def test_other_parameters_of_the_base_act_under_a_lora() -> None:
    model, literal = tiny.make("gpt2"), tiny.make("gpt2")
    with tiny.Float64(), torch.no_grad():
        others = {name: value.double() + 0.1 for name, value in model.named_parameters()}
        literal.load_state_dict(others, strict=False)
        made = tiny.away(model, "lora:rank=2", 0)
        with ts.attach(literal, *made):
            want = logits(literal)
        with ts.attach(model, *made):
            found = torch.func.functional_call(model, others, (), {"input_ids": IDS}).logits
    torch.testing.assert_close(found, want, rtol=0, atol=1e-10)
