"""The names of tensors that a method's docstring quotes, and its page with it, are names that its tensors have."""

import re

import pytest
import tiny

import tunescope as ts
from tunescope.methods.artifact import Spec
from tunescope.methods.text_form import methods

ATTACHED: dict[str, list[Spec]] = {
    "adapter": [ts.Adapter(), ts.Adapter(placement="multi-head", sites=("attn.heads",))],
    "infix": [ts.Infix(length=2)],
    "inputs": [ts.Inputs(length=2)],
    "lora": [ts.LoRA()],
    "prefix": [ts.Prefix(length=2)],
    "reweight": [ts.Text(text="w5 w6 w7"), ts.Reweight(anchors=("1",))],
}


def quoted(name: str) -> set[str]:
    return set(re.findall(r'"(decoder\.0[^"]*)"', methods()[name].__doc__ or ""))


def test_every_method_that_quotes_names_is_tried_here() -> None:
    assert {name for name in methods() if quoted(name)} - set(ATTACHED) == {"anchors"}  # named as a prefix's are


@pytest.mark.parametrize("name", ATTACHED)
def test_quoted_names_are_the_tensors_own(name: str) -> None:
    model = tiny.make("gpt2")
    with ts.attach(model, *ATTACHED[name], tokenizer=tiny.tokenizer()) as tuned:
        tensors = {key for artifact in tuned.artifacts for key in artifact.tensors}
    assert quoted(name) and quoted(name) <= tensors
