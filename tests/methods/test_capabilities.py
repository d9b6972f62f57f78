"""What is asked of a method is asked of its spec, not of its class's name: a class of another name answers as well."""

from dataclasses import dataclass

import pytest
import tiny

import tunescope as ts
from tunescope.attachment.bank.bank import Bank
from tunescope.attachment.context_keys import in_force
from tunescope.methods.artifact import Artifact
from tunescope.methods.deltas.full import Full
from tunescope.methods.deltas.head import Head
from tunescope.theory.costs import methods as costs


@dataclass(frozen=True)
class Everything(Full):
    """Full tuning under another name."""


@dataclass(frozen=True)
class Classes(Head):
    """A head under another name."""


@dataclass(frozen=True)
class LowRank(ts.LoRA):
    """A LoRA under another name."""


def test_a_bank_refuses_what_is_a_model_of_its_own_whatever_it_is_called() -> None:
    with pytest.raises(ts.UserError, match="holds a full tuning, which is a model of its own"):
        Bank({"one": Everything()})


def test_a_head_decides_no_keys_whatever_it_is_called() -> None:
    model = tiny.make("gpt2")
    text, head = Artifact(ts.Prefix(), {}), [Artifact(Classes(), {}), Artifact(Head(), {})]
    bare = in_force(model, [text], 0)
    assert all(in_force(model, [text, one], 0) == bare for one in head)
    assert in_force(model, [text, Artifact(ts.LoRA(), {})], 0) != bare


def test_the_cost_model_counts_what_a_method_says_it_is() -> None:
    assert costs.of(LowRank(rank=3)) == costs.Method("lora", 3, ("attn.q", "attn.v")) == costs.of(ts.LoRA(rank=3))
