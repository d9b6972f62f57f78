"""Full tuning of the weights themselves: what torch makes of a model's own parameters, and nothing of it stays."""

import copy
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from torch.func import functional_call

import tunescope as ts
from tunescope.attachment.weights import Patched
from tunescope.errors import UserError
from tunescope.models.fingerprint import fingerprint

STEPS, RATE = 4, 0.01


def loss(model: Any, step: int) -> Tensor:
    text = tiny.ids(2, 6, seed=step)
    found: Tensor = model(input_ids=text, labels=text).loss
    return found


def trained(model: Any, parameters: list[Tensor]) -> None:
    """Some steps of AdamW, without decay."""
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def states(model: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("family", ["opt", "llama"])  # the first has one table for words in and out
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_weights_become_what_torch_makes_of_them_to_the_bit_and_are_given_back(
    family: str, dtype: torch.dtype
) -> None:
    model, other = tiny.make(family, dtype=dtype), tiny.make(family, dtype=dtype)
    before, print_before = states(model), fingerprint(model)
    trained(other, list(other.parameters()))
    after = states(other)
    own = dict(model.named_parameters())
    with ts.attach(model, ts.Full()) as tuned:
        with tuned.in_place():
            trained(model, tuned.train().parameters())
            assert all(torch.equal(value, after[name]) for name, value in states(model).items())
            assert {id(value) for value in tuned.parameters()} == {id(value) for value in model.parameters()}
            assert fingerprint(model) == print_before
        for name, value in states(model).items():  # behind it the changes are added again
            larger = torch.maximum(before[name].abs(), after[name].abs())
            assert bool(((value - after[name]).abs() <= torch.finfo(dtype).eps * larger).all()), name
        changes = tuned.artifacts[0].tensors
    assert all(torch.equal(value, before[name]) for name, value in states(model).items())
    assert all(value is own[name] for name, value in model.named_parameters())
    for name, change in changes.items():
        key = name.removeprefix("head:") if name.startswith("head:") else f"{model.base_model_prefix}.{name}"
        assert torch.equal(change, after[key] - before[key]), name


def test_a_model_in_sixteen_bits_computes_with_a_copy_of_weights_in_float32() -> None:
    model = tiny.make("llama", dtype=torch.bfloat16)
    other, before = copy.deepcopy(model), states(model)
    weights = {name: value.detach().float().requires_grad_() for name, value in other.named_parameters()}
    optimizer = torch.optim.AdamW(weights.values(), lr=RATE, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.zero_grad()
        text = tiny.ids(2, 6, seed=step)
        given = {name: value.to(torch.bfloat16) for name, value in weights.items()}
        functional_call(other, given, kwargs={"input_ids": text, "labels": text}).loss.backward()
        optimizer.step()
    with ts.attach(model, ts.Full()) as tuned, tuned.in_place():
        trained(model, tuned.train().parameters())
        assert {value.dtype for value in tuned.parameters()} == {torch.float32}
        loss(model, 0)  # for which the copy is made
        found = states(model)
        for name, value in weights.items():
            assert torch.equal(found[name], value.detach().to(torch.bfloat16)), name
    assert all(torch.equal(value, before[name]) for name, value in states(model).items())


def test_a_change_beside_the_weights_learns_the_same_but_for_rounding() -> None:
    model = tiny.make("llama", dtype=torch.float64)
    with ts.attach(model, ts.Full()) as tuned:
        trained(model, tuned.train().parameters())
        beside = {name: value.detach().clone() for name, value in tuned.artifacts[0].tensors.items()}
    with ts.attach(model, ts.Full()) as tuned:
        with tuned.in_place():
            trained(model, tuned.train().parameters())
        for name, value in tuned.artifacts[0].tensors.items():
            torch.testing.assert_close(value.detach(), beside[name], rtol=0, atol=1e-9)


def test_what_is_changed_already_is_gone_on_with_and_saved(tmp_path: Path) -> None:
    model = tiny.make("llama", dtype=torch.float32)
    (artifact,) = tiny.away(model, "full:only=*norm*", 0)
    with ts.attach(model, artifact) as tuned:
        before = loss(model, 0).detach()
        with tuned.in_place():
            torch.testing.assert_close(loss(model, 0).detach(), before)
            assert all(name.endswith(".whole") for name in tuned.named_parameters())
            with pytest.raises(UserError, match=r"save\(\) within in_place\(\)"):
                ts.save(tmp_path / "early", tuned.artifacts, model=model)
            with pytest.raises(UserError, match=r"paused\(\) within in_place\(\)"), tuned.paused():
                pass
        assert not any(name.endswith(".whole") for name in tuned.named_parameters())
        ts.save(tmp_path / "saved", tuned.artifacts, model=model)
    with ts.attach(model, *ts.load(tmp_path / "saved")):
        torch.testing.assert_close(loss(model, 0).detach(), before)


@pytest.mark.parametrize("way", ["raises", "detaches"])
def test_however_it_ends_the_model_is_as_before(way: str) -> None:
    model = tiny.make("gpt2", dtype=torch.float32)
    before = states(model)
    tuned = ts.attach(model, ts.Full())
    with suppress(KeyboardInterrupt), tuned.in_place():
        trained(model, tuned.train().parameters())
        if way == "detaches":
            tuned.detach()
        raise KeyboardInterrupt
    if way == "raises":
        assert not torch.equal(model.lm_head.weight, before["lm_head.weight"])  # its change is still attached
        tuned.detach()
    assert all(torch.equal(value, before[name]) for name, value in states(model).items())


@pytest.mark.parametrize("specs", [[ts.LoRA(rank=2)], [ts.Full(), ts.Prefix(length=2)], [ts.Bias()]])
def test_other_artifacts_have_no_weights_to_stand_for(specs: list[Any]) -> None:
    with ts.attach(tiny.make("gpt2"), *specs) as tuned:
        assert not tuned.is_weights
        with pytest.raises(UserError, match=r"in_place\(\) is for full tuning alone"), tuned.in_place():
            pass


def test_single_rows_have_none_either() -> None:
    with (
        ts.attach(tiny.make("gpt2"), ts.Full(only=("wte.weight",), rows=(1,))) as tuned,
        pytest.raises(UserError, match=r"attach\(model, Full\(\)\), and this is Full\(.*rows=\(1,\)\)"),
        tuned.in_place(),
    ):
        pass


@pytest.mark.parametrize("in_place", [False, True])
def test_a_model_that_is_moved_while_its_weights_stand_changed_is_given_back_moved(in_place: bool) -> None:
    model = tiny.make("gpt2", dtype=torch.float32)  # another type instead of another device: both are `model.to`
    before = {name: value.double() for name, value in states(model).items()}
    with ts.attach(model, ts.Full()) as tuned:
        with tuned.in_place() if in_place else nullcontext():
            model.double()
            trained(model, tuned.train().parameters())
            assert {value.dtype for value in model.parameters()} == {torch.float64}
        assert not torch.equal(model.lm_head.weight, before["lm_head.weight"])
    assert all(torch.equal(value, before[name]) for name, value in states(model).items())


def test_where_there_is_no_room_to_move_what_is_put_back_it_is_put_back_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(self: Patched) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model = tiny.make("gpt2")
    own, before = dict(model.named_parameters()), states(model)
    tuned = ts.attach(model, ts.Bias())
    monkeypatch.setattr(Patched, "follow", full)
    with pytest.raises(torch.OutOfMemoryError):
        tuned.detach()
    assert all(value is own[name] for name, value in model.named_parameters())
    assert all(torch.equal(value, before[name]) for name, value in states(model).items())
