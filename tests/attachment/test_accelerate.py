"""What accelerate puts around a model that has something attached comes off again, as it does from a bare model."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import tiny
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

import tunescope as ts


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)  # the precision would be that of every accelerator to come


@pytest.mark.parametrize("when", ["attached", "detached"])
@pytest.mark.parametrize("what", ["lora", "bank"])
def test_a_model_prepared_for_bfloat16_is_unwrapped_to_what_it_was(what: str, when: str) -> None:
    model = tiny.make("llama", dtype=torch.float32)
    accelerator, given = Accelerator(cpu=True, mixed_precision="bf16"), tiny.batch(model)
    artifacts = tiny.away(model, "lora:rank=2", 0)
    rows: dict[str, Any] = {"rows": ["anna"] * len(given["input_ids"])} if what == "bank" else {}
    with torch.no_grad():
        bare = model(**given).logits
        tuned: Any = ts.attach(model, *([ts.Bank({"anna": artifacts})] if rows else artifacts))
        wanted = model(**given, **rows).logits
        prepared = accelerator.prepare(model)
        assert not torch.equal(prepared(**given, **rows).logits, wanted)  # in bfloat16
        if when == "detached":
            tuned.detach()
        accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)
        if when == "attached":
            assert torch.equal(model(**given, **rows).logits, wanted) and not torch.equal(wanted, bare)
            tuned.detach()
        assert torch.equal(model(**given).logits, bare)
        zeroed = copy.deepcopy(model)  # has a `forward` of its own, as accelerate leaves one on a bare model, too
        for value in zeroed.parameters():
            value.zero_()
        assert not zeroed(**given).logits.any()
