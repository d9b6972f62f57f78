"""Sites by name on every family, and what is said of families that are not reached or not mapped."""

from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from traces import assert_no_trace, trace
from unlisted import UNMAPPED, UNREACHED, unlisted

import tunescope as ts
from tunescope.attachment.attention.reach import reached
from tunescope.attachment.sites.site_map import sites_of
from tunescope.models import sites
from tunescope.models.anatomy import kind
from tunescope.models.family import family_names, find_family
from tunescope.models.sites import select


@pytest.mark.parametrize("family", UNREACHED)
def test_a_family_that_keeps_attention_to_itself_is_refused_by_name(family: str) -> None:
    model = unlisted(family)
    before = trace(model)
    for context in (ts.Prefix(length=2), ts.Soft(length=2)):
        with pytest.raises(ts.UserError, match=f"Family '{family}' computes attention by itself: .* does not reach it"):
            ts.attach(model, context)
    assert_no_trace(model, before)
    given = {"input_ids": tiny.ids()}
    with torch.no_grad():
        plain = tiny.output(model, given)
    for delta in (ts.Bias(), ts.Full()):
        with ts.attach(model, delta) as tuned:
            tuned.train()
            assert torch.equal(tiny.output(model, given), plain)
            tiny.output(model, given).square().mean().backward()
            assert all(leaf.grad is not None for leaf in tuned.parameters())
    assert_no_trace(model, trace(model))


@pytest.mark.parametrize("family", UNMAPPED)
def test_an_unmapped_family_takes_contexts_and_full_tuning_and_says_so(family: str) -> None:
    model = unlisted(family)
    before = trace(model)
    given = tiny.batch(model, "none")
    with torch.no_grad():
        plain = tiny.output(model, given)
    for spec in (ts.Prefix(length=2), ts.Soft(length=2), ts.Full()):
        with ts.attach(model, spec) as tuned:
            tuned.train()
            out = tiny.output(model, given)
            assert torch.equal(out, plain) == spec.fresh_is_identity
            out.square().mean().backward()
            for name, leaf in tuned.named_parameters().items():
                if not isinstance(spec, ts.Full):  # Pegasus keeps fixed positions among its parameters
                    assert leaf.grad.abs().max() > 0, name
    assert_no_trace(model, before)


def test_a_family_that_shares_one_module_over_layers_is_refused_by_name() -> None:
    model = unlisted("albert")
    before = trace(model)
    with pytest.raises(ts.UserError, match="'albert' runs one attention module in several layers"):
        ts.attach(model, ts.Prefix(length=2))
    assert_no_trace(model, before)


@pytest.mark.parametrize("family", family_names())
def test_every_attention_module_is_reached_and_named_by_stack_depth_and_kind(family: str) -> None:
    model = tiny.make(family)
    found = [place.name for place in reached(model)]
    of = {"decoder": ("decoder",), "encoder": ("encoder",), "encoder-decoder": ("encoder", "decoder")}[kind(model)]
    expected = {f"{stack}.{i}.self" for stack in of for i in range(2)}
    if len(of) == 2:
        expected |= {"decoder.0.cross", "decoder.1.cross"}
    assert set(found) == expected
    assert len(found) == len(expected)
    for place in reached(model):
        assert place.shape.kv_heads in (2, 3, 4)


@pytest.mark.parametrize("family", family_names())
def test_a_site_s_map_is_what_its_slice_of_the_module_computes(family: str) -> None:
    """Every linear site's x and h, recorded by plain hooks, are h = x W^T + b for the rows that the site names."""
    model = tiny.make(family)
    seen: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def note(module: Any, args: Any, output: Any) -> None:
        seen[module] = (args[0], output)

    found = sites_of(model)
    handles = [module.register_forward_hook(note) for module in {site.h.module for site in found.values()}]
    with torch.no_grad():
        tiny.output(model, tiny.batch(model))
    for handle in handles:
        handle.remove()
    for name, site in found.items():
        assert site.name == name
        if site.is_linear:
            x, h = seen[site.h.module]
            weight = site.h.module.weight.T if sites.is_transposed(site.h.module) else site.h.module.weight
            rows = slice(None) if site.h.columns is None else site.h.columns
            bias = 0 if site.h.module.bias is None else site.h.module.bias[rows]
            torch.testing.assert_close(site.h.read(h), x @ weight[rows].T + bias, rtol=0, atol=1e-12)
            assert (site.x.width, site.h.width) == (x.shape[-1], site.h.read(h).shape[-1])


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox"])
def test_fused_maps_are_split_as_the_model_splits_them(family: str) -> None:
    model = tiny.make(family)
    own = {}
    from tunescope.attachment.initial_artifacts import base_of

    ids = tiny.ids(1, 5)[0]
    for name, (key, value) in base_of(model).keys_values(ids).items():
        own[name] = {"k": key, "v": value}
    given: dict[str, torch.Tensor] = {}
    found = sites_of(model)
    module = found["decoder.0.self.v"].h.module
    handle = module.register_forward_hook(lambda m, a, out: given.update(v=found["decoder.0.self.v"].h.read(out)))
    with torch.no_grad():
        model(input_ids=ids[None])
    handle.remove()
    split = given["v"][0].unflatten(-1, (3, 8)).transpose(0, 1)
    torch.testing.assert_close(split, own["decoder.0.self"]["v"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_a_whole_name_is_one_layer_s_site(family: str) -> None:
    model = tiny.make(family)
    found = sites_of(model)
    for name in found:
        assert [site.name for site in select(found, (name,), "test", family)] == [name]
    with pytest.raises(ts.UserError, match=r"asks for site 'decoder.7.self.q', which family"):
        select(found, ("decoder.7.self.q",), "test", family)


def test_selectors_name_kinds_of_sites_or_those_of_one_stack() -> None:
    model = tiny.make("bart")
    found = sites_of(model)

    def chosen(*selectors: str) -> set[str]:
        return {site.name for site in select(found, selectors, "X", "bart")}

    assert chosen("attn.q") == {f"{s}.{i}.self.q" for s in ("encoder", "decoder") for i in (0, 1)} | {
        f"decoder.{i}.cross.q" for i in (0, 1)
    }
    assert chosen("cross") == {"decoder.0.cross", "decoder.1.cross"}
    assert chosen("encoder.ffn") == {"encoder.0.ffn", "encoder.1.ffn"}
    assert chosen("decoder.attn") == {f"decoder.{i}.{k}" for i in (0, 1) for k in ("self", "cross")}
    assert chosen("self.q", "attn.q") == chosen("attn.q")


@pytest.mark.parametrize(
    ("family", "selector", "hint"),
    [
        ("gpt2", "attn.w", "Did you mean 'attn.[a-z]+'"),
        ("gpt2", "fnn", "Did you mean 'ffn.in'"),
        ("gpt2", "cross.q", "'gpt2' has: ffn, ffn.in, ffn.out, self, self.heads, self.k"),
        ("bert", "decoder.attn", "'bert' has: "),
        ("gpt2", "ffn.gate", "which family 'gpt2' does not have"),
    ],
)
def test_a_site_that_is_not_there_is_refused_with_the_nearest_name(family: str, selector: str, hint: str) -> None:
    with pytest.raises(ts.UserError, match=r"LoRA.* asks for site") as refusal:
        ts.attach(tiny.make(family), ts.LoRA(sites=(selector,)))
    assert repr(selector) in str(refusal.value)
    with pytest.raises(ts.UserError, match=hint):
        ts.attach(tiny.make(family), ts.LoRA(sites=(selector,)))


def test_a_layout_other_than_mapped_is_refused() -> None:
    model = tiny.make("llama")
    del model.model.layers[0].mlp.up_proj
    with pytest.raises(ts.UserError, match=r"no feed-forward at .*: another layout than mapped"):
        _ = sites_of(model)


def test_gated_t5_is_mapped_too() -> None:
    config = tiny.configs()["t5"]
    config.feed_forward_proj, config.is_gated_act, config.dense_act_fn = "gated-gelu", True, "gelu_new"
    model = tiny.build(tf.AutoModelForSeq2SeqLM, config)
    with ts.attach(model, ts.LoRA(rank=2, sites=("ffn.in", "ffn.gate", "ffn.out")), ts.Adapter(bottleneck=2)) as tuned:
        tuned.train()
        tiny.output(model, tiny.batch(model)).square().mean().backward()
        assert all(leaf.grad is not None for leaf in tuned.parameters())


@pytest.mark.parametrize("family", ["gpt2", "bert", "bart", "t5"])
def test_the_kind_is_known_from_the_config_alone(family: str) -> None:
    assert kind(tiny.make(family)) == kind(tiny.configs()[family]) == find_family(family).kind


def test_reentrant_checkpointing_is_refused_where_it_loses_gradients() -> None:
    for family in ("gpt2", "bert", "bart"):
        model = tiny.make(family).train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        with ts.attach(model, ts.Prefix(length=2)) as tuned:
            tuned.train()
            with pytest.raises(
                ts.UserError, match=r"Reentrant .* loses the gradients of a context\. Use .*use_reentrant"
            ):
                tiny.output(model, tiny.batch(model))
            model.training = False  # its layers are checkpointed where they are trained themselves
            with pytest.raises(ts.UserError, match="Reentrant"):
                tiny.output(model, tiny.batch(model))
