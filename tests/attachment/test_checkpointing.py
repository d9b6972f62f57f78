"""Gradient checkpointing computes a layer again as it was computed: what was called in between changes no gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
from traces import trace

import tunescope as ts
from tunescope.attachment.attention.function import STATE
from tunescope.attachment.guards.checkpointing import FUNCTION
from tunescope.errors import UserError

ARMS = [
    "prefix:length=3",
    "soft:length=3",
    "full",
    "lora:rank=2,alpha=3,dropout=0.4",
    "text:text=w5 w6 w7 w8+reweight:anchors=1,2/3",
    "prefix:length=3+adapter:bottleneck=3,placement=parallel,sites=ffn,scale=4.0",
]
Between = Callable[[Any, Any, dict[str, Any]], None]


def nothing(tuned: Any, model: Any, given: dict[str, Any]) -> None:
    pass


def bare(tuned: Any, model: Any, given: dict[str, Any]) -> None:
    """As direct preference optimisation asks for its reference."""
    with tuned.paused(), torch.no_grad():
        tiny.output(model, given)


def unasked(tuned: Any, model: Any, given: dict[str, Any]) -> None:
    with torch.no_grad():
        tiny.output(
            model, {name: value[1:] if isinstance(value, torch.Tensor) else value for name, value in given.items()}
        )


def weighed(tuned: Any, model: Any, given: dict[str, Any]) -> None:
    model(**given, output_attentions=True)


def switched_on(model: Any, checkpointing: bool) -> Any:
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def gradients(
    family: str, arm: str, checkpointing: bool, between: Between, *, late: bool = False
) -> dict[str, torch.Tensor]:
    model = switched_on(tiny.make(family), checkpointing and not late)
    given: dict[str, Any] = {**tiny.batch(model)} | ({} if family == "bert" else {"use_cache": False})
    acts_on_outputs = family != "t5" and ("infix" in arm or "reweight" in arm)
    start = {"output_start": torch.tensor([2] * len(given["input_ids"]))} if acts_on_outputs else {}
    with ts.attach(model, *tiny.away(model, arm, 0), tokenizer=tiny.tokenizer()) as tuned:
        tuned.train()
        switched_on(model, checkpointing)
        torch.manual_seed(0)
        out = tiny.output(model, given | start)
        between(tuned, model, given | start)
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        tuned.eval()
        return {name: value.grad for name, value in tuned.named_parameters().items() if value.grad is not None}


CASES = [(family, arm) for family in ("gpt2", "llama", "t5", "bert") for arm in ARMS]
CASES = [(family, arm) for family, arm in CASES if not (family == "bert" and "reweight" in arm)]


@pytest.mark.parametrize("between", [nothing, bare, unasked, weighed])
@pytest.mark.parametrize(
    ("family", "arm"),
    [*CASES, ("gpt2", "infix:length=2"), ("gpt2", "bias"), ("bert", "bias"), ("llama", "infix:length=2")],
)
def test_what_is_called_before_the_backward_pass_changes_no_gradient(family: str, arm: str, between: Between) -> None:
    off, on = (gradients(family, arm, checkpointing, between) for checkpointing in (False, True))
    assert off.keys() == on.keys() and sum(float(value.abs().max()) for value in off.values()) > 0
    for name, gradient in off.items():
        torch.testing.assert_close(on[name], gradient, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("arm", ["prefix:length=3", "full"])
def test_switched_on_after_attaching_it_is_the_same(arm: str) -> None:
    off, on = (gradients("llama", arm, checkpointing, bare, late=True) for checkpointing in (False, True))
    for name, gradient in off.items():
        torch.testing.assert_close(on[name], gradient, rtol=0, atol=1e-12, msg=name)


BANK = {
    "long": "prefix:length=5",
    "short": "prefix:length=2",
    "lora": "lora:rank=2,alpha=3",
    "mam": "prefix:length=3+adapter:bottleneck=3,placement=parallel,sites=ffn,scale=4.0",
}
CALLS = [["long", None, "lora"], ["mam", "short", "short"], [None, "lora", "long"]]


def bank_gradients(family: str, checkpointing: bool, together: bool) -> dict[str, torch.Tensor]:
    """Of the sum of three calls' losses, by one backward pass or by one for each call."""
    model = switched_on(tiny.make(family), checkpointing)
    held = {name: tiny.away(model, arm, seed) for seed, (name, arm) in enumerate(BANK.items())}
    with ts.attach(model, ts.Bank(held)) as tuned:
        tuned.train()
        losses = []
        for seed, rows in enumerate(CALLS):
            given = {"input_ids": tiny.ids(3, 6, seed=seed)}
            given |= {"decoder_input_ids": tiny.ids(3, 5, seed=seed + 9)} if family == "t5" else {}
            loss = tiny.output(model, {**given, "rows": rows}).square().mean()
            losses.append(loss)
            if not together:
                loss.backward()
        if together:
            sum(losses).backward()
        with torch.no_grad():  # and the next call has its own rows, whatever was computed again
            after = tiny.output(model, {**given, "rows": CALLS[0]})
        tuned.eval()
        found = {name: value.grad for name, value in tuned.named_parameters().items()}
    with ts.attach(model.eval(), ts.Bank(held)), torch.no_grad():
        torch.testing.assert_close(after, tiny.output(model, {**given, "rows": CALLS[0]}), rtol=0, atol=1e-12)
    return found


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "bert"])
def test_calls_of_a_bank_with_other_rows_have_one_backward_pass(family: str) -> None:
    apart = bank_gradients(family, checkpointing=False, together=False)
    together = bank_gradients(family, checkpointing=True, together=True)
    assert apart.keys() == together.keys()
    for name, gradient in apart.items():
        assert gradient.abs().max() > 0
        torch.testing.assert_close(together[name], gradient, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("arm", ["prefix:length=3", "lora:rank=2", "full"])
def test_a_backward_pass_after_detach_or_in_a_pause_is_one_clear_line(arm: str) -> None:
    model = switched_on(tiny.make("llama"), True)
    given: dict[str, Any] = {"input_ids": tiny.ids(), "use_cache": False}
    tuned = ts.attach(model, *tiny.away(model, arm, 0)).train()
    one, two = (tiny.output(model, given).square().sum() for _ in range(2))
    with tuned.paused(), pytest.raises(UserError, match=r"call backward\(\) before detach\(\), and outside of paused"):
        one.backward()
    tuned.detach()
    with pytest.raises(UserError, match="no longer attached"):
        two.backward()


def test_a_backward_pass_after_a_bank_is_detached_is_one_clear_line() -> None:
    model = switched_on(tiny.make("llama"), True)
    tuned = ts.attach(model, ts.Bank({"lora": tiny.away(model, "lora:rank=2", 0)})).train()
    loss = tiny.output(model, {"input_ids": tiny.ids(), "rows": ["lora"] * 2}).square().sum()
    tuned.detach()
    with pytest.raises(UserError, match="no longer attached"):
        loss.backward()


def test_the_model_s_own_function_stands_there_again_afterwards() -> None:
    model = switched_on(tiny.make("gpt2"), True)
    before = {name: module.__dict__.get(FUNCTION) for name, module in model.named_modules()}
    left = trace(model)
    with ts.attach(model, *tiny.away(model, "lora:rank=2", 0)) as tuned:
        tuned.train()
        tiny.output(model, {"input_ids": tiny.ids()})
        inside = {name: module.__dict__.get(FUNCTION) for name, module in model.named_modules()}
        tuned.eval()
    assert any(before[name] is not inside[name] for name in before)
    assert all(module.__dict__.get(FUNCTION) is before[name] for name, module in model.named_modules())
    assert trace(model)["hooks"] == left["hooks"]


def test_a_probe_is_fed_in_the_forward_pass_alone() -> None:
    model = switched_on(tiny.make("llama"), True)
    given = {"input_ids": tiny.ids(), "use_cache": False}
    with ts.attach(model, *tiny.away(model, "prefix:length=2", 0)) as tuned:
        tuned.train()
        tiny.output(model, given)
        states = [module.__dict__[STATE] for module in model.modules() if STATE in module.__dict__]
        fed: list[object] = []
        for state in states:
            state.keep = lambda module, _: fed.append(module)
        loss = tiny.output(model, given).square().sum()
        assert len(fed) == len(states)
        loss.backward()
        assert len(fed) == len(states)
        tuned.eval()


def test_the_keys_of_a_text_are_kept_without_a_graph_where_inputs_ask_for_gradients() -> None:
    """What is kept has no backward pass of its own, which a second step would go through again."""
    model = tiny.make("llama")
    model.enable_input_require_grads()
    members = {"text": tiny.away(model, "text:text=w5 w6", 0), "lora": tiny.away(model, "lora:rank=2", 0)}
    found = []
    with ts.attach(model, ts.Bank(members), tokenizer=tiny.tokenizer()) as tuned:
        for _ in range(2):
            tuned.train()
            model(tiny.ids(), rows=["text", "lora"]).logits.square().sum().backward()
            found.append([value.grad.clone() for value in tuned.parameters()])
            for value in tuned.parameters():
                value.grad = None
    assert all(one.any() and torch.equal(one, again) for one, again in zip(*found, strict=True))


def test_reentrant_checkpointing_of_what_has_no_context_is_the_same() -> None:
    found = []
    for reentrant in (False, True):
        model = tiny.make("gpt2").train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        model.enable_input_require_grads()
        with ts.attach(model, *tiny.away(model, "lora:rank=2", 0)) as tuned:
            tuned.train()
            tiny.output(model, {"input_ids": tiny.ids()}).square().sum().backward()
            found.append([value.grad for value in tuned.parameters()])
            tuned.eval()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
