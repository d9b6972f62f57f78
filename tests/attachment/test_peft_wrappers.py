"""A delta on a model whose linear maps stand within wrappers of peft's: on top of its adapter, or refused."""

import copy
from typing import Any

import peft
import pytest
import tiny
import torch

import tunescope as ts
from tunescope.methods.artifact import Artifact

ALL = ts.LoRA(rank=2, sites=("all-linear",))


def wrapped(*targets: str) -> Any:
    config = peft.LoraConfig(r=2, target_modules=list(targets), init_lora_weights=False)
    return peft.get_peft_model(tiny.make("llama"), config).eval()


@torch.no_grad()
def test_lora_of_all_linear_maps_is_that_on_peft_s_merged_model() -> None:
    model = wrapped("q_proj", "up_proj")
    merged = copy.deepcopy(model).merge_and_unload()
    (made,) = tiny.away(model.get_base_model(), "lora:rank=2,sites=all-linear")
    plain = {name.replace(".base_layer", ""): value for name, value in made.tensors.items()}
    with ts.attach(merged, ALL) as on_merged:
        assert on_merged.artifacts[0].tensors.keys() == plain.keys()
    with ts.attach(merged, Artifact(ALL, plain)):
        expected = merged(tiny.ids()).logits
    with ts.attach(model.get_base_model(), made):
        got = model(tiny.ids()).logits
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert (got - model(tiny.ids()).logits).abs().max() > 1e-3


@pytest.mark.parametrize(("target", "path"), [("q_proj", "self_attn.q_proj"), ("up_proj", "mlp.up_proj")])
def test_sites_by_name_beside_peft_s_adapter_are_refused_and_what_is_advised_is_taken(target: str, path: str) -> None:
    model, delta = wrapped(target), ts.Adapter(bottleneck=2)
    with pytest.raises(ts.UserError, match=r"for a delta at sites by name .*attach\(model\.merge_and_unload\(\)"):
        ts.attach(model, delta)
    told = (
        rf"^peft's adapter \('default'\) stands around layers\.0\.{path}, .* Merge it first, with peft's model\.merge"
    )
    with pytest.raises(ts.UserError, match=told):
        ts.attach(model.get_base_model(), delta)
    ts.attach(model.get_base_model(), ts.Prefix(length=2)).detach()
    ts.attach(model.merge_and_unload(), delta).detach()
