"""A prefix of layer inputs against the frozen maps applied by hand."""

import pytest
import tiny
import torch
import torch.nn.functional as F

import tunescope as ts
from tunescope.attachment.attention.record import record
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.methods.text_form import parse


def gpt2_map(model, name, which):
    fused, width = model.transformer.h[int(name.split(".")[1])].attn.c_attn, model.config.n_embd
    at = slice(width, 2 * width) if which == "k" else slice(2 * width, 3 * width)
    return fused.weight[:, at].T, fused.bias[at]


def llama_map(model, name, which):
    return model.model.layers[int(name.split(".")[1])].self_attn.get_submodule(f"{which}_proj").weight, None


def bert_map(model, name, which):
    layer = model.base_model.encoder.layer[int(name.split(".")[1])].attention.self
    found = layer.key if which == "k" else layer.value
    return found.weight, found.bias


def t5_map(model, name, which):
    stack, index, kind = name.split(".")
    block = model.get_submodule(stack).block[int(index)]
    attention = block.layer[0].SelfAttention if kind == "self" else block.layer[1].EncDecAttention
    return attention.get_submodule(which).weight, None


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "t5"])
def test_its_keys_and_values_are_the_layers_own_maps_of_its_vectors(family):
    model, map_of = tiny.make(family), globals()[f"{family}_map"]
    with ts.attach(model, ts.Inputs(length=3), seed=1) as tuned:
        kept = record(model, tiny.batch(model), "context_key", "context_value")
        vectors = tuned.artifacts[0].tensors
    for name, x in vectors.items():
        module = name.removesuffix(".inputs")
        for which, got in (("k", kept[f"{module}.context_key"]), ("v", kept[f"{module}.context_value"])):
            expected = F.linear(x, *map_of(model, module, which)).view(3, -1, got.shape[-1]).transpose(0, 1)
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_at_equal_length_it_has_half_the_parameters_of_a_free_prefix():
    model = gpt2(Shape(4, 4, 256), 12, 20, 0)
    sizes = {}
    for arm in ("inputs:length=12", "prefix:length=12", "lora:rank=1,sites=attn.o,ffn.in,ffn.out", "inputs:length=10"):
        with ts.attach(model, *parse(arm)) as tuned:
            sizes[arm] = sum(value.numel() for value in tuned.parameters())
    assert list(sizes.values()) == [12_288, 24_576, 12_288, 10_240]  # Petrov et al. 2024, section 6.2


def test_a_delta_on_the_key_map_acts_on_it_as_on_the_text():
    model = tiny.make("gpt2")
    batch = tiny.batch(model)
    lora = ts.LoRA(rank=2, sites=("attn.k", "attn.v"))
    with ts.attach(model, lora, seed=0) as tuned:
        changed = tuned.artifacts[0]
        changed.tensors = {name: value + 0.1 for name, value in changed.tensors.items()}
    with ts.attach(model, ts.Inputs(length=2), changed, seed=3) as tuned:
        expected, merged_inputs = model(**batch).logits, tuned.artifacts[0]
    merged = ts.merge(model, changed)
    with ts.attach(merged, merged_inputs):
        torch.testing.assert_close(merged(**batch).logits, expected, rtol=0, atol=1e-10)


def test_none_is_refused():
    with pytest.raises(ts.UserError, match=r"Inputs\(length=0\): a prefix has at least one position"):
        ts.attach(tiny.make("gpt2"), ts.Inputs(length=0))
