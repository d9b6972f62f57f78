"""A model of which a part was set to zero, as ablations do, has the sites that it has, and so have others like it."""

import pytest
import tiny
import torch
import transformers

import tunescope as ts
from tunescope.attachment.sites import site_map
from tunescope.attachment.sites.hidden_ways import no_zeros


@pytest.mark.parametrize("family", ["llama", "gemma2", "t5", "gpt2"])
def test_an_ablated_layer_takes_what_an_intact_one_takes(family, monkeypatch):
    monkeypatch.setattr(site_map, "_BY_SHAPE", {})
    intact, ablated = tiny.make(family), tiny.make(family)
    with torch.no_grad():
        empty = [
            one for name, one in ablated.named_parameters() if ".0." in name and ("mlp" in name or "Dense" in name)
        ]
        for one in empty:
            one.zero_().neg_()  # with a sign, which is kept
    before = {name: value.clone() for name, value in ablated.state_dict().items()}
    for model in (ablated, intact):  # the second is looked up
        with ts.attach(model, ts.LoRA(rank=2), ts.Adapter(bottleneck=2)) as tuned:
            assert any(".0.ffn" in name for name in tuned.named_parameters())
    assert empty
    for name, value in ablated.state_dict().items():
        assert torch.equal(value, before[name]) and torch.equal(value.signbit(), before[name].signbit()), name


@pytest.mark.parametrize("clip", [0.5, 5.0])
def test_columns_that_a_clip_takes_on_one_text_are_the_map_s_all_the_same(clip, monkeypatch):
    monkeypatch.setattr(site_map, "_BY_SHAPE", {})
    config = transformers.OlmoConfig(**tiny.LLAMA_LIKE, clip_qkv=clip)
    torch.manual_seed(0)
    model = transformers.OlmoForCausalLM(config).double().eval()
    for value in model.parameters():
        value.data.mul_(20)
    with ts.attach(model, ts.LoRA(rank=2, sites=("attn.q", "attn.k", "attn.v"))) as tuned:
        shapes = {name.partition(".")[2]: value.shape for name, value in tuned.named_parameters().items()}
    layer = model.model.layers[0].self_attn
    for role in "qkv":
        assert shapes[f"decoder.0.self.{role}:b"] == (getattr(layer, f"{role}_proj").out_features, 2)
    assert model.config.clip_qkv == clip


def test_what_is_no_zero_stays_where_it_is_and_a_fault_leaves_nothing():
    model = tiny.make("llama")
    model.model.layers[0].register_parameter("none", torch.nn.Parameter(torch.zeros(0, 3)))  # of no rows
    model.model.layers[0].mlp.up_proj.weight.data.zero_()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = []

    def broken():
        found.extend(name for name, value in model.state_dict().items() if not torch.equal(value, before[name]))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), no_zeros(model):
        broken()
    assert found == ["model.layers.0.mlp.up_proj.weight"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
