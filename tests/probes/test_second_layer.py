"""The four terms of the next layer's logits, against the paper's formula and against whole products."""

from dataclasses import replace

import pytest
import tiny
import torch
import transformers
from probe_tools import FAMILIES

import tunescope as ts
from tunescope.attachment.attention.reach import reached
from tunescope.attachment.attention.record import record
from tunescope.attachment.sites.site_map import sites_of
from tunescope.probes.looks import second_layer as probe
from tunescope.probes.looks.prefix_bias import prefix_bias
from tunescope.probes.looks.second_layer import second_layer
from tunescope.probes.maps import maps
from tunescope.probes.see import see

DECODERS = [family for family in FAMILIES if tiny.is_decoder(tiny.make(family))]


def test_a_decoder_of_one_layer_is_told_to_have_one():
    config = transformers.GPT2Config(vocab_size=100, n_embd=12, n_layer=1, n_head=2, n_positions=32)
    model = tiny.build(transformers.AutoModelForCausalLM, config)
    seen = see(model, tiny.away(model, "prefix:length=2"), {"input_ids": tiny.ids()})
    with pytest.raises(ts.UserError, match="this decoder has one layer"):
        probe.look(seen)


def test_the_terms_are_the_paper_s_and_sum_to_the_simplified_layer_s_logits():
    """One context vector, no residual and no norm, pair by pair as Petrov et al. write it."""
    T, D, scale = 5, 7, 0.3
    g = torch.Generator().manual_seed(0)
    q, k, v, wide = (torch.randn(n, D, generator=g, dtype=torch.float64) for n in (T, 1 + T, 1 + T, D))
    weights = (q @ k.T).masked_fill(~torch.ones(T, 1 + T, dtype=torch.bool).tril(1), -torch.inf).softmax(-1)
    split = prefix_bias(weights[None, None], v[None, None], 1)
    got = second_layer(split.bias[0, 0], split.content[0, 0], scale * wide)
    a, mu = weights[:, 0], v[0]
    t = (weights[:, 1:] / weights[:, 1:].sum(-1, keepdim=True)) @ v[1:]
    whole = weights @ v
    for i in range(T):
        for j in range(T):
            terms = [
                scale * a[i] * a[j] * mu @ wide @ mu,
                scale * a[j] * (1 - a[i]) * t[i] @ wide @ mu,
                scale * a[i] * (1 - a[j]) * mu @ wide @ t[j],
                scale * (1 - a[i]) * (1 - a[j]) * t[i] @ wide @ t[j],
            ]
            for mine, term in zip(got, terms, strict=True):
                torch.testing.assert_close(mine[i, j], term, rtol=0, atol=1e-12)
            torch.testing.assert_close(sum(terms), scale * whole[i] @ wide @ whole[j], rtol=0, atol=1e-12)


def test_only_the_last_term_joins_content_with_content():
    g = torch.Generator().manual_seed(0)
    bias, content = (torch.randn(5, 7, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    terms = second_layer(bias, content, torch.randn(7, 7, generator=g, dtype=torch.float64))
    for name, term in terms._asdict().items():
        (slope,) = torch.autograd.grad(term[1, 3], content, allow_unused=True, retain_graph=True)
        reached = [] if slope is None else slope.abs().sum(-1).nonzero()[:, 0].tolist()
        assert reached == {"bias_bias": [], "content_bias": [1], "bias_content": [3], "content_content": [1, 3]}[name]


@pytest.mark.parametrize("family", DECODERS)
def test_the_maps_are_those_that_make_the_model_s_queries_keys_and_output(family):
    """At position 0, which no rotation turns, and without biases."""
    model = tiny.make(family)
    found = maps(model)
    assert list(found) == ["decoder.0.self", "decoder.1.self"]
    if family == "qwen3":  # it norms queries and keys behind the maps
        return
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    inputs = {}
    module = reached(model)[1].module
    handle = module.register_forward_pre_hook(
        lambda _m, args, kwargs: inputs.update(x=kwargs.get("hidden_states", args[0] if args else None)),
        with_kwargs=True,
    )
    given = {"input_ids": tiny.ids(1, 1)}
    kept = record(model, given, "query", "key")
    handle.remove()
    x = inputs["x"][0]
    mine = found["decoder.1.self"]
    scaled = mine.scaling if family == "opt" else 1.0  # which scales its queries itself
    torch.testing.assert_close(x @ mine.query.mT * scaled, kept["decoder.1.self.query"][0], rtol=0, atol=1e-12)
    groups = mine.key.shape[0] // kept["decoder.1.self.key"].shape[1]
    key = kept["decoder.1.self.key"][0].repeat_interleave(groups, 0)
    torch.testing.assert_close(x @ mine.key.mT, key, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", DECODERS)
def test_the_parts_through_the_output_map_are_the_attention_block_s_output_but_for_its_bias(family):
    model = tiny.make(family)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    kept = {}
    tap = sites_of(model)["decoder.0.self.o"].h
    seen = see(model, tiny.away(model, "prefix:length=3"), tiny.batch(model))
    with ts.attach(model, *tiny.away(model, "prefix:length=3")), torch.no_grad():
        handle = tap.module.register_forward_hook(lambda _m, _a, out: kept.update(out=out))
        model(**tiny.batch(model))
        handle.remove()
    bias, content = probe._added(seen.along["decoder.0.self"], seen.maps["decoder.0.self"])
    real = seen.along["decoder.0.self"].real
    torch.testing.assert_close((bias + content)[real], kept["out"][real], rtol=0, atol=1e-12)


def test_maps_in_fewer_bits_are_not_read_and_attention_is():
    """As bitsandbytes has a weight in 4 bits: two numbers a byte, in one column."""
    model = tiny.make("llama")
    artifacts, batch = tiny.away(model, "prefix:length=2"), tiny.batch(model)
    expected = see(model, artifacts, batch)
    for layer in model.model.layers:
        for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj, layer.self_attn.o_proj):
            plain = linear.weight.detach()
            linear.forward = lambda x, plain=plain: torch.nn.functional.linear(x, plain)
            codes = torch.zeros(plain.numel() // 2, 1, dtype=torch.uint8)
            linear.weight = torch.nn.Parameter(codes, requires_grad=False)
    found = see(model, [replace(one, base=None) for one in artifacts], batch)
    assert expected.maps and found.maps == {}
    torch.testing.assert_close(found.held["decoder.1.self"].weights, expected.held["decoder.1.self"].weights)
    with pytest.raises(
        ts.UserError, match=r"of the families gemma2, gpt2, .*, qwen3, not quantised; this model is another"
    ):
        probe.look(found)


@pytest.mark.parametrize(("family", "arm"), [("bert", "prefix"), ("t5", "prefix"), ("gpt2", "lora")])
def test_what_it_cannot_look_at_is_told(family, arm):
    model = tiny.make(family)
    seen = see(model, tiny.away(model, arm), tiny.batch(model))
    with pytest.raises(ts.UserError, match=r"Probe second_layer.*tunescope probe pattern"):
        probe.look(seen)
