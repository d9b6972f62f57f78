"""torch's own activation checkpointing, CheckpointWrapper, gives the gradients that the model has without it."""

from functools import partial
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)

import tunescope as ts
from tunescope.errors import UserError

IDS, OTHER = tiny.ids(2, 7), tiny.ids(2, 7, seed=8)
KIND = CheckpointImpl.NO_REENTRANT


def wrapped(model: Any, kind: CheckpointImpl = KIND) -> None:
    layers = {type(one) for found in model.modules() if isinstance(found, torch.nn.ModuleList) for one in found}
    wrap = partial(checkpoint_wrapper, checkpoint_impl=kind)
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap, check_fn=lambda one: type(one) in layers)


def gradients(family: str, arm: str, when: str, both: bool) -> Tensor:
    """Of a loss whose backward pass comes behind another call, of other rows, which may have a part in it."""
    model = tiny.make(family)
    if when == "before":
        wrapped(model)
    with ts.attach(model, *tiny.away(model, arm, by=0.3), tokenizer=tiny.tokenizer()) as tuned:
        if when == "after":
            wrapped(model)
        tuned.train()
        starts = [{"output_start": torch.tensor(at)} if "infix" in arm else {} for at in ([3, 3], [5, 4])]
        loss = model(input_ids=IDS, use_cache=False, **starts[0]).logits.square().sum()
        with torch.set_grad_enabled(both):
            other = model(input_ids=OTHER, use_cache=False, **starts[1]).logits.square().sum()
        (loss - other if both else loss).backward()
        return torch.cat([value.grad.flatten() for value in tuned.parameters() if value.grad is not None])


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("family", "arm"),
    [
        ("llama", "infix:length=3"),
        ("llama", "soft:length=3"),
        ("llama", "text:text=w5 w6 w7+lora:rank=2"),
        ("gemma2", "prefix:length=3+lora:rank=2"),
        ("llama", "adapter:bottleneck=2"),
    ],
)
def test_gradients_are_those_without_it_whatever_was_called_since(family: str, arm: str, when: str, both: bool) -> None:
    expected = gradients(family, arm, "never", both)
    torch.testing.assert_close(gradients(family, arm, when, both), expected, rtol=1e-9, atol=1e-12)
    assert expected.abs().max() > 1e-6


def of_bank(wraps: bool) -> Tensor:
    model = tiny.make("llama")
    names = {"a": tiny.away(model, "prefix:length=3", by=0.3), "b": tiny.away(model, "prefix:length=3", 9, by=0.3)}
    with ts.attach(model, ts.Bank(names)) as tuned:
        if wraps:
            wrapped(model)
        tuned.train()
        one = model(input_ids=IDS, rows=["a", "b"], use_cache=False).logits.square().sum()
        other = model(input_ids=OTHER, rows=["b", "a"], use_cache=False).logits.square().sum()
        (one - other).backward()
        return torch.cat([value.grad.flatten() for value in tuned.parameters()])


def test_a_bank_has_the_gradients_of_the_rows_of_each_call() -> None:
    torch.testing.assert_close(of_bank(True), of_bank(False), rtol=1e-9, atol=1e-12)


def test_the_wrappers_run_as_before_afterwards() -> None:
    model = tiny.make("llama")
    wrapped(model)
    before = [one.checkpoint_fn for one in model.modules() if hasattr(one, "checkpoint_fn")]
    with ts.attach(model, ts.LoRA(rank=2), ts.Prefix(length=2)):
        model(input_ids=IDS)
    assert [one.checkpoint_fn for one in model.modules() if hasattr(one, "checkpoint_fn")] == before != []


def test_the_reentrant_kind_is_refused_with_a_context_in_front() -> None:
    model = tiny.make("llama")
    wrapped(model, CheckpointImpl.REENTRANT)
    with ts.attach(model, ts.Prefix(length=2)) as tuned:
        tuned.train()
        with pytest.raises(UserError, match="Reentrant gradient checkpointing loses the gradients of a context"):
            model(input_ids=IDS, use_cache=False)
