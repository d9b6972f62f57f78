"""Sites that a pass shows: those of the families' files, right where there is none; a wrong file is refused."""

import json
from pathlib import Path
from typing import Any

import manifests
import pytest
import tiny
import torch
import transformers as tf
from extension import forget, plugin_folder  # noqa: F401
from torch import Tensor
from traces import assert_no_trace, trace
from zoo import ZOO, inputs, zoo

import tunescope as ts
from tunescope.attachment.attention.function import STATE, LayerState
from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.sites import site_map as site_map_file
from tunescope.attachment.sites.choice import linear_maps, parts_of_maps, sites_for
from tunescope.attachment.sites.site_map import site_map, sites_of
from tunescope.models.family import family_names
from tunescope.models.sites import find_sites

LIKE_NO_OTHER = (  # fused, grouped, head by head, gated, latent, multi-query, norms between, hybrids, encoder-decoders
    *(
        "phi3",
        "gpt_bigcode",
        "gpt_bigcode-many",
        "falcon",
        "falcon-new",
        "bloom",
        "codegen",
        "qwen3_next",
        "deepseek_v3",
    ),
    *(
        "deepseek_v3",
        "minicpm3",
        "olmo2",
        "gemma3_text",
        "gemma4_text",
        "bitnet",
        "jamba",
        "falcon_h1",
        "modernbert",
        "t5gemma",
    ),
    *("persimmon", "ctrl", "mixtral", "llama4_text", "whisper", "vit"),
)


@pytest.mark.parametrize("family", family_names())
def test_a_pass_shows_what_the_family_s_file_says_and_leaves_no_trace(family: str) -> None:
    model = tiny.make(family)
    before = trace(model)
    found = {one.name: one for one in site_map(model).found}
    assert_no_trace(model, before)
    told = find_sites(model, ts.models.anatomy.anatomy(model).kind)
    assert found.keys() == told.keys() and site_map(model).notes == {}
    modules = dict(model.base_model.named_modules())
    for name, site in told.items():
        assert modules[found[name].h.path] is site.h.module and found[name].h.width == site.h.width
        assert modules[found[name].x.path] is site.x.module and found[name].x.width == site.x.width
    assert sites_of(model).keys() == told.keys()


@pytest.mark.parametrize("family", sorted({*LIKE_NO_OTHER}))
def test_a_model_that_its_caller_froze_shows_the_same_sites_and_stays_frozen(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for is_frozen in (False, True):
        monkeypatch.setattr(site_map_file, "_BY_SHAPE", {})  # or the second is told what the first showed
        model = zoo(family).requires_grad_(not is_frozen)
        told.append(repr(site_map(model)))
        assert {one.requires_grad for one in model.parameters()} == {not is_frozen}
    assert told[0] == told[1]


def test_sites_are_found_with_an_attention_that_has_no_gradients_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flex attention has none there, and the model without gradients runs."""
    told = []
    for attention in ("sdpa", "flex_attention"):
        monkeypatch.setattr(site_map_file, "_BY_SHAPE", {})
        model = tiny.make("bert", dtype=torch.float32, attention=attention)
        told.append(repr(site_map(model)))
        assert model.config._attn_implementation == attention
    assert told[0] == told[1]


def seen_by_attention(model: Any, name: str, family: str) -> dict[str, list[Tensor]]:
    """query, key and value, in every attention module."""
    kept: dict[str, list[Tensor]] = {"q": [], "k": [], "v": []}

    def keep(_module: Any, made: Any) -> None:
        for role, full in (("q", "query"), ("k", "key"), ("v", "value")):
            kept[role].append(made[full])

    (place,) = [one for one in reached(model) if one.name == name]
    before = place.module.__dict__.get(STATE)
    place.module.__dict__[STATE] = LayerState(keep=keep)
    try:
        with switched(model), torch.no_grad():
            model(**inputs(family, model))
    finally:
        place.module.__dict__.pop(STATE)
        if before is not None:
            place.module.__dict__[STATE] = before
    return kept


@pytest.mark.parametrize("family", LIKE_NO_OTHER)
def test_a_change_at_a_site_changes_what_its_name_says_and_nothing_beside_it(family: str) -> None:
    """What attention is given is seen by attention itself, not by who found the maps."""
    model = zoo(family).requires_grad_(False)  # as attach has it: torch multiplies by frozen weights in another way
    sites, shapes = sites_of(model), {one.name: one.shape for one in reached(model)}
    with tiny.Float64():
        for name in shapes:
            plain = seen_by_attention(model, name, family)
            for role in "qkv":
                if f"{name}.{role}" not in sites:
                    continue
                with ts.attach(model, *tiny.away(model, f"lora:rank=1,sites={name}.{role}")):
                    changed = seen_by_attention(model, name, family)
                moved = {one for one in "qkv" if not torch.equal(changed[one][0], plain[one][0])}
                assert moved == {role}, (name, role)
                wide = plain[role][0] != changed[role][0]
                assert role == "k" or wide.flatten(0, 2).any(0).all(), (name, role)


@pytest.mark.parametrize(
    ("family", "short", "path"),
    [
        ("mixtral", "ffn", "layers.0.mlp"),
        ("qwen2_moe", "ffn", "layers.0.mlp"),
        ("gpt_oss", "ffn", "layers.0.mlp"),
        ("jamba", "mixer", "layers.0.mamba.out_proj"),
        ("mamba", "mixer", "layers.0.mixer.out_proj"),
        ("mpt", "mixer", "blocks.0.attn.out_proj"),
        ("gemma4_text", "ffn", "layers.0.mlp.down_proj"),
        ("gemma3n_text", "ffn", "layers.0.mlp.down_proj"),
    ],
)
def test_where_a_block_ends(family: str, short: str, path: str) -> None:
    model = zoo(family)
    site = sites_of(model)[f"decoder.0.{short}"]
    assert site.h.module is model.base_model.get_submodule(path) and site.h.end == "out"


def test_what_is_not_there_or_not_alone_is_no_site_and_is_told() -> None:
    gated = sites_of(zoo("qwen3_next"))
    assert any(name.endswith("self.o") for name in gated) and not any(name.endswith("heads") for name in gated)
    shared = zoo("granitemoeshared")
    assert not any(".ffn" in name for name in sites_of(shared))
    assert "block_sparse_moe and layers.0.shared_mlp" in site_map(shared).notes["decoder.0"]
    keys = sites_of(zoo("gemma4_text"))
    assert "decoder.0.self.k" in keys and "decoder.3.self.k" not in keys and "decoder.3.self.q" in keys


WRONG = '''
"""Phi-3 as if its fused map were three equal parts."""
from dataclasses import replace

from tunescope.models.family import Slice
from tunescope.models.families.llama import FAMILY as LLAMA

STACK = LLAMA.stacks["decoder"]
PARTS = {name: Slice("self_attn.qkv_proj", i, 3) for i, name in enumerate("qkv")}
FUSED = replace(STACK, attention=replace(STACK.attention, **PARTS), ffn_in=("mlp.gate_up_proj",), ffn_gate=())
FAMILY = replace(LLAMA, stacks={"decoder": FUSED})
'''


def test_a_file_that_says_otherwise_than_the_model_is_refused(plugin_folder: Path) -> None:  # noqa: F811
    (plugin_folder / "families" / "phi3.py").write_text(WRONG)
    forget()
    message = (
        r"Family 'phi3': its file has site 'decoder.0.\S+' at .*, and a pass of this model has it at .*: the model"
    )
    with pytest.raises(ts.UserError, match=message):
        ts.attach(zoo("phi3"), ts.LoRA(rank=2))


def test_linear_maps_are_had_by_their_paths() -> None:
    model = zoo("mamba")
    paths = {site.name for site in sites_for(model, ts.LoRA(sites=("path:*.out_proj", "path:layers.0.*.in_proj")))}
    assert paths == {"layers.0.mixer.out_proj", "layers.1.mixer.out_proj", "layers.0.mixer.in_proj"}
    with pytest.raises(ts.UserError, match=r"'path:\*\.q_proj', which matches no linear map .* end in: .*out_proj"):
        sites_for(model, ts.LoRA(sites=("path:*.q_proj",)))
    with pytest.raises(ts.UserError, match=r"layers\.0\.mlp\.experts\.\S+ is no linear map but the weights of several"):
        sites_for(zoo("mixtral"), ts.LoRA(sites=("path:*.experts*",)))
    with pytest.raises(ts.UserError, match=r"'mamba' has: mixer .* had by their paths too: sites=all-linear"):
        sites_for(model, ts.LoRA())


def test_where_a_delta_would_change_nothing_there_is_no_map() -> None:
    """Mamba takes dt_proj's weight without calling it; a router gives more than one tensor; a pooler comes behind."""
    for family, ending in (("mamba", "dt_proj"), ("llama4_text", "router"), ("albert", "pooler")):
        model = zoo(family)
        assert any(path.endswith(ending) for path, _ in model.base_model.named_modules())
        assert linear_maps(model) and not any(path.endswith(ending) for path in linear_maps(model))


@pytest.mark.parametrize(("family", "ending"), [("longformer", "query_global"), ("mamba", "dt_proj")])
def test_a_map_that_a_short_text_does_not_come_through_is_refused_by_its_path_and_told(
    family: str, ending: str
) -> None:
    told = rf"'path:\*\.{ending}': on a short text the model does not call \S*{ending}, or nothing hangs"
    with pytest.raises(ts.UserError, match=told):
        ts.attach(zoo(family), ts.LoRA(rank=2, sites=(f"path:*.{ending}",)))


def test_at_all_linear_a_map_that_is_narrower_than_the_rank_has_as_much_of_it_as_it_can() -> None:
    model = zoo("qwen2_moe")
    (made,) = tiny.away(model, "lora:rank=4,sites=all-linear")
    ranks = {name.rpartition(".")[2]: len(value) for name, value in made.tensors.items() if name.endswith(":a")}
    assert ranks["shared_expert_gate:a"] == 1 and ranks["q_proj:a"] == 4
    with ts.attach(model, ts.Bank({"anna": made})), torch.no_grad(), tiny.Float64():
        banked = model(**inputs("qwen2_moe", model), rows=["anna", "anna"]).logits
    with ts.attach(model, made), torch.no_grad(), tiny.Float64():
        torch.testing.assert_close(banked, model(**inputs("qwen2_moe", model)).logits, rtol=0, atol=1e-10)


def test_places_stand_in_the_manifest_and_a_model_that_has_them_elsewhere_is_refused(tmp_path: Path) -> None:
    model = zoo("phi3")
    ts.save(tmp_path / "saved", tiny.away(model, "lora:rank=2,sites=self.k"), model=model)
    path = tmp_path / "saved" / "tunescope.json"
    told = json.loads(path.read_text())
    places = told["artifacts"][0]["sites"]
    width = sites_of(model)["decoder.0.self.k"].h.width
    start = sites_of(model)["decoder.0.self.q"].h.width
    assert places["decoder.0.self.k"] == f"layers.0.self_attn.qkv_proj:out[{start}:{start + width}]"
    with ts.attach(model, *ts.load(tmp_path / "saved")):
        pass
    places["decoder.0.self.k"] = "layers.0.self_attn.qkv_proj:out[0:12]"
    manifests.write(path.parent, told)
    with pytest.raises(ts.UserError, match=r"where site 'decoder.0.self.k' is .*\[0:12\], and here it is .*\[32:48\]"):
        ts.attach(model, *ts.load(tmp_path / "saved"))
    told["artifacts"][0]["sites"] = [1]
    manifests.write(path.parent, told)
    with pytest.raises(ts.UserError, match="does not describe its folder"):
        ts.load(tmp_path / "saved")


def test_what_several_modules_share_is_not_merged_into() -> None:
    model = zoo("zamba2")
    before = trace(model)
    with pytest.raises(ts.UserError, match="whose weight other modules of the model share"):
        ts.merge(model, *tiny.away(model, "lora:rank=2"))
    assert_no_trace(model, before)


def test_a_model_that_cannot_be_run_is_one_line() -> None:
    model = zoo("olmo2")
    del model.model.layers[0].mlp.up_proj
    with pytest.raises(ts.UserError, match=r"Family 'olmo2', run on .*: its own code fails \(AttributeError"):
        sites_of(model)


def test_a_weight_of_zeros_hides_no_map() -> None:
    """Blocks that are put in to be tuned begin with output maps of zeros (LLaMA Pro)."""
    config = ZOO["olmo2"]()
    config.max_position_embeddings = 77  # no other model's: sites are kept by config, and weights do not count
    model = tiny.build(tf.AutoModelForCausalLM, config)
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
    maps = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    assert set(linear_maps(model)) == {f"layers.{index}.{path}" for index in range(2) for path in maps}


def test_a_map_that_no_sites_have_in_whole_is_one_by_its_path() -> None:
    """Qwen 3.5 gives a gate beside the query: LoRA of peft's on the map must not lose its rows."""
    model = zoo("qwen3_5_text")
    name = next(one.name for one in reached(model))
    module = sites_of(model)[f"{name}.q"].h.module
    (one,) = parts_of_maps(model)[module]
    assert (
        one.name.endswith("q_proj") and one.h.width == module.out_features == 2 * sites_of(model)[f"{name}.q"].h.width
    )
