"""What is drawn for a spec is the same whatever modes of torch its caller is in."""

from typing import Any

import pytest
import tiny
import torch
from callers_modes import MODES

import tunescope as ts

SPECS = [ts.LoRA(rank=2), ts.Prefix(length=2), ts.Prefix(length=2, mlp=4), ts.Soft(length=2), ts.Adapter(), ts.Full()]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_it_is_drawn_as_outside(mode: str, spec: Any) -> None:
    model = tiny.make("llama")
    with ts.attach(model, spec, seed=3) as tuned:
        outside = {name: value.detach().clone() for name, value in tuned.named_parameters().items()}
    with MODES[mode](), ts.attach(model, spec, seed=3) as tuned:
        within = tuned.named_parameters()
    assert outside.keys() == within.keys()
    assert all(
        torch.equal(value, within[name]) and value.dtype == within[name].dtype for name, value in outside.items()
    )
