"""Rank, effective rank and span of the bias."""

import math

import pytest
import tiny
import torch
import transformers
from probe_tools import FAMILIES

from tunescope.probes.looks.subspace import look, subspace
from tunescope.probes.see import see


def test_effective_rank_is_the_exponential_of_the_entropy_of_the_singular_values():
    g = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(3, 13, 5, generator=g, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(3, 7, 5, generator=g, dtype=torch.float64))
    values = torch.tensor([[1.0, 1, 1, 1, 1], [4, 2, 1, 1, 0], [3, 0, 0, 0, 0]], dtype=torch.float64)
    got = subspace(left * values[:, None] @ right.mT, right.mT)
    shares = [0.5, 0.25, 0.125, 0.125]
    expected = [5.0, math.exp(-sum(s * math.log(s) for s in shares)), 1.0]
    torch.testing.assert_close(got.effective_rank, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    assert got.rank.tolist() == [5, 4, 1]
    assert got.span.tolist() == [5, 5, 5]
    assert got.outside.max() <= 1e-12


def test_what_no_combination_of_the_values_gives_is_outside_and_no_bias_has_rank_zero():
    values = torch.eye(4, dtype=torch.float64)[None, :2]
    bias = torch.tensor([[[1.0, 2, 0, -3], [0, 1, 0, 0]]], dtype=torch.float64)
    assert subspace(bias, values).outside.tolist() == [3.0]
    none = subspace(torch.zeros_like(bias), values)
    assert (none.rank.item(), none.effective_rank.item(), none.outside.item()) == (0, 0, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bias_lies_in_the_span_of_the_prefix_values_in_every_module(family):
    model = tiny.make(family)
    seen = see(model, tiny.away(model, "prefix:length=3"), tiny.batch(model))
    for name, layer in seen.along.items():
        got = subspace(layer.at_real(layer.bias), layer.values[0, :, :3])
        assert got.outside.max() <= 1e-12, name
        assert (got.rank <= 3).all() and (got.span == 3).all(), name
        assert ((got.effective_rank >= 1) & (got.effective_rank <= got.rank + 1e-9)).all(), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("arm", "rank"), [("prefix:length=12,mlp=2", 3), ("text:text=w5 w5 w5 w5 w5", 1)]
)  # two units and their bias; one word, whose values are the same at every place
def test_rounding_is_no_rank(arm, rank, dtype):
    config = transformers.LlamaConfig(**{**tiny.LLAMA_LIKE, "hidden_size": 128, "num_attention_heads": 4})
    model = tiny.build(transformers.AutoModelForCausalLM, config, dtype=dtype)
    made = tiny.away(model, arm) if rank > 1 else tiny.initialised(model, tiny.parse(arm), tiny.tokenizer(), 0)
    found = look(see(model, made, {"input_ids": tiny.ids(4, 16)}, tiny.tokenizer()))
    assert [row[1:3] for row in found.rows] == [(rank, rank)] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_many_positions_in_16_bits_have_the_rank_of_their_directions(dtype):
    """Ten orthogonal directions, the least a third of the greatest; rounded, and seen from a thousand positions."""
    g = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(32, 10, generator=g, dtype=torch.float64))[0].mT
    values = torch.linspace(1, 1 / 3, 10, dtype=torch.float64)[:, None] * directions
    values = torch.cat([values, values[:4] + values[4:8]])[None].to(dtype).double()  # fourteen tokens
    weights = torch.linalg.qr(torch.randn(1, 1000, 14, generator=g, dtype=torch.float64))[0]
    got = subspace(weights @ values, values, dtype)
    assert (got.rank.item(), got.span.item()) == (10, 10)


def test_ranks_are_those_of_the_directions_whatever_the_scale():
    g = torch.Generator().manual_seed(0)
    values = torch.randn(2, 3, 7, generator=g, dtype=torch.float64)
    bias = torch.rand(2, 13, 3, generator=g, dtype=torch.float64) @ values
    for scale in (1e-12, 1.0, 1e12):  # in large ones rounding alone is above 1e-10
        got = subspace(scale * bias, scale * values)
        assert (got.rank.tolist(), got.span.tolist()) == ([3, 3], [3, 3])
