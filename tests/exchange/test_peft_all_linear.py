"""peft's LoRA on all linear maps of families without a file: read, and written by us for peft, the same outputs."""

from pathlib import Path

import peft
import peftly
import pytest
import tiny
import torch
from zoo import inputs, zoo

import tunescope as ts
from tunescope.exchange import convert

FAMILIES = (
    "phi3",
    "gemma3_text",
    "olmo2",
    "qwen2_moe",
    "stablelm",
    "falcon",
    "bloom",
    "gptj",
    "mpt",
    "deberta-v2",
    "mt5",
    "modernbert",
)


def outputs(model, given):
    with torch.no_grad(), tiny.Float64():
        return peftly.outputs(model, given)


@pytest.mark.parametrize("family", FAMILIES)
def test_peft_s_lora_on_all_linear_maps_gives_peft_s_outputs(family: str, tmp_path: Path) -> None:
    model = zoo(family)
    task = peftly.TASKS[ts.models.anatomy.kind(model)]
    made = peftly.wrapped(model, peft.LoraConfig(r=2, lora_alpha=3, target_modules="all-linear", task_type=task))
    found = convert.read(peftly.written(made, tmp_path / "peft"), form="peft", model=model)
    given = inputs(family, model)
    expected, bare = outputs(made, given), outputs(model, given)
    with ts.attach(model, *found.artifacts):
        got = outputs(model, given)
    assert (expected - bare).abs().max() > 1e-3
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sites", [("attn.q", "attn.v", "ffn.out"), ("all-linear",)], ids=str)
@pytest.mark.parametrize("family", ["phi3", "falcon", "olmo2", "mt5"])
def test_what_is_written_gives_the_attached_model_s_outputs_in_peft(
    family: str, sites: tuple[str, ...], tmp_path: Path
) -> None:
    model = zoo(family)
    with tiny.Float64():
        artifacts = tiny.away(model, f"lora:rank=2,sites={','.join(sites)}")
        done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-10
    given = inputs(family, model)
    with ts.attach(model, *artifacts):
        expected = outputs(model, given)
    torch.testing.assert_close(outputs(peftly.loaded(model, tmp_path / "out"), given), expected, rtol=0, atol=1e-10)
