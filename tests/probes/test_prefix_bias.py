"""The split of attention into context and content: exact, in every family, at every site of an encoder-decoder."""

import pytest
import tiny
import torch
import torch.nn.functional as F
from probe_tools import FAMILIES, literally

import tunescope as ts
from tunescope.probes.looks.prefix_bias import prefix_bias
from tunescope.probes.see import see


@pytest.mark.parametrize("n_context", [0, 1, 5])
def test_split_is_exact_and_leaves_the_content_pattern_alone(n_context):
    B, H, T, D = 2, 3, 7, 11  # distinct primes: a transposed axis cannot pass
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(B, H, n, D, generator=g, dtype=torch.float64) for n in (T, n_context + T, n_context + T))
    sees = torch.ones(T, n_context + T, dtype=torch.bool).tril(n_context)
    weights = (q @ k.mT / D**0.5).masked_fill(~sees, -torch.inf).softmax(-1)

    got = prefix_bias(weights, v, n_context)

    whole = F.scaled_dot_product_attention(q, k, v, attn_mask=sees)  # torch's kernel is the oracle
    alone = F.scaled_dot_product_attention(q, k[:, :, n_context:], v[:, :, n_context:], is_causal=True)
    torch.testing.assert_close(got.bias + got.content, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(got.pattern @ v[:, :, n_context:], alone, rtol=0, atol=1e-12)
    assert got.share.shape == (B, H, T, 1)
    assert (got.share > 0).all() == (n_context > 0)


def test_a_query_that_sees_no_content_has_no_pattern():
    weights = torch.tensor([[[[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]]])
    got = prefix_bias(weights, torch.ones(1, 1, 3, 2), 1)
    assert got.pattern[0, 0, 0].isnan().all()
    assert got.pattern[0, 0, 1].tolist() == [0.5, 0.5]


def contexts(family):
    decoder = ["soft:length=3", "text:text=w5 w6", "prefix:length=3+soft:length=2", "prefix:length=2,positions=after"]
    is_decoder = tiny.is_decoder(tiny.make(family))
    return ["prefix:length=3", *(decoder if is_decoder else ["soft:length=3"])]


CASES = [(family, arm) for family in FAMILIES for arm in contexts(family)]


@pytest.mark.parametrize(("family", "arm"), CASES)
def test_bias_and_content_are_the_head_output_in_every_module(family, arm):
    model = tiny.make(family)
    seen = see(model, tiny.away(model, arm), tiny.batch(model))
    for name, layer in seen.along.items():
        got = prefix_bias(layer.weights, layer.values, layer.n_context)
        torch.testing.assert_close(got.bias + got.content, layer.output, rtol=0, atol=1e-12, msg=name)
        assert layer.n_context >= 2 or (name.startswith("decoder.") and "soft" in arm), name


def behind(batch, family, used):
    """The same text at the positions that it has behind a context which uses so many."""
    if used == 0 or family == "t5":
        return batch
    positions = batch.get("position_ids", torch.arange(7)[None] + (2 if family == "roberta" else 0))
    return {**batch, "position_ids": positions + used}


@pytest.mark.parametrize(("family", "arm"), CASES)
def test_pattern_on_the_content_values_is_the_layer_without_the_context(family, arm):
    model = tiny.make(family)
    batch = tiny.batch(model)
    with ts.attach(model, *tiny.away(model, arm)) as tuned, tiny.Float64():
        seen = see(model, tuned, batch)
    if seen.no_bare:
        assert family in ("bart", "mbart") and "soft" in arm
        return
    alone = literally(model, behind(batch, family, tuned.positions))
    for name, layer in seen.held.items():
        got = prefix_bias(layer.weights, layer.values, layer.n_context)
        mine = (got.pattern @ layer.values[:, :, layer.n_context :]).transpose(1, 2)[layer.real]
        torch.testing.assert_close(mine, alone[name][0].transpose(1, 2)[layer.real], rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_the_first_layer_a_prefix_only_scales_attention_on_the_content(family):
    """A with the prefix = A without * (1 - share), of two whole runs of the model."""
    model = tiny.make(family)
    batch = tiny.batch(model)
    with tiny.Float64():
        seen = see(model, tiny.away(model, "prefix:length=3"), batch)
    alone = literally(model, batch)
    firsts = [name for name in seen.along if name.endswith(".0.self")]
    assert len(firsts) == 1 + (model.config.is_encoder_decoder)
    for name in firsts:
        layer = seen.along[name]
        share = layer.weights[..., :3].sum(-1, keepdim=True)
        expected = alone[name][1] * (1 - share)
        got = layer.weights[..., 3:]
        real = layer.real[:, None, :, None].expand_as(got)
        torch.testing.assert_close(got[real], expected[real], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("family", "arm"), CASES)
def test_the_bias_lies_in_the_span_of_the_context_values(family, arm):
    model = tiny.make(family)
    seen = see(model, tiny.away(model, arm), tiny.batch(model))
    for name, layer in seen.along.items():
        if "soft" in arm and not tiny.is_decoder(model):
            continue  # among the tokens of an encoder every row has context values of its own
        bias = prefix_bias(layer.weights, layer.values, layer.n_context).bias
        for head in range(bias.shape[1]):
            rows = bias[:, head][layer.real]
            spanning = layer.values[0, head, : layer.n_context]
            inside = rows @ torch.linalg.pinv(spanning) @ spanning
            torch.testing.assert_close(inside, rows, rtol=0, atol=1e-12, msg=name)
            assert torch.linalg.matrix_rank(rows, rtol=1e-12) <= layer.n_context


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_tokens_in_front_of_left_padded_text_of_an_encoder_are_refused_and_a_prefix_is_not(family):
    model, given = tiny.make(family), tiny.batch(tiny.make(family), "left")
    with pytest.raises(ts.UserError, match="Pad the text on the right"):
        see(model, tiny.away(model, "soft:length=3"), given)
    assert see(model, tiny.away(model, "prefix:length=3"), given).along


def test_the_model_is_left_as_it_was():
    model = tiny.make("llama")
    batch = tiny.batch(model)
    with torch.no_grad():
        plain = model(**batch).logits
        see(model, tiny.away(model, "prefix:length=3+lora:rank=2"), batch)
        assert torch.equal(model(**batch).logits, plain)
    with ts.attach(model, *tiny.away(model, "prefix:length=3+full")) as tuned:
        tuned.train()
        with torch.no_grad():
            inside = model(**batch).logits
            see(model, tuned, batch)
            assert torch.equal(model(**batch).logits, inside)
        assert tuned.training
        assert all(value.requires_grad for value in tuned.parameters())
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, plain)
