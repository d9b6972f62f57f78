"""LoRA in families with experts: peft gives the attached model's outputs, or the export is refused, and rightly."""

from pathlib import Path

import peftly
import pytest
import tiny
import torch
from peft.utils import transformers_weight_conversion as theirs
from transformers import CONFIG_MAPPING
from zoo import inputs, zoo
from zoo_mixtures import MIXTURES

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.peft import experts

FAMILIES = (*MIXTURES, "qwen3_next", "jamba", "lfm2_moe", "granitemoehybrid")
LOST = (
    "qwen3_moe",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe",
    "dots1",
    "afmoe",
    "exaone_moe",
    "ernie4_5_moe",
    "hunyuan_v1_moe",
    "cohere2_moe",
    "longcat_flash",
    "qwen3_next",
)
ROUTER = "path:*.router.gate"
FEED_FORWARD = "ffn.gate,ffn.in,ffn.out"


def drawn(model, sites: str):
    with tiny.Float64():
        return tiny.away(model, f"lora:rank=2,sites={sites}")


def exported(model, artifacts, folder: Path):
    with tiny.Float64():
        return convert.export(folder, artifacts, to="peft", model=model)


def attached(model, artifacts, given):
    with ts.attach(model, *artifacts):
        return peftly.outputs(model, given)


def test_the_table_is_that_of_the_installed_peft_and_transformers() -> None:
    """Where this fails after an update: put in what is new, run this file, name the versions beside the table."""
    base = theirs._MODEL_TO_CONVERSION_PATTERN
    taken = {
        family: {name for name, its in theirs._MOE_TARGET_MODULE_MAPPING[base[family]].items() if its != "gate.weight"}
        for family in base
        if family in CONFIG_MAPPING and base[family] in theirs._MOE_FUSED_TARGETS
    }
    assert {family: set(names) for names, families in experts.NAMES.items() for family in families} == taken


@pytest.mark.parametrize(
    ("family", "sites"),
    [*((family, sites) for family in FAMILIES for sites in ("attn.q,attn.v", "all-linear")), ("afmoe", ROUTER)],
)
def test_lora_in_a_mixture_is_the_attached_model_in_peft_or_is_refused(family: str, sites: str, tmp_path: Path) -> None:
    model = zoo(family)
    artifacts = drawn(model, sites)
    if sites == "all-linear" and family in LOST:
        with pytest.raises(ts.UserError, match="would be lost"):
            exported(model, artifacts, tmp_path / "out")
        return
    exported(model, artifacts, tmp_path / "out")
    given = inputs(family, model)
    got, bare = peftly.outputs(peftly.loaded(model, tmp_path / "out"), given), peftly.outputs(model, given)
    assert (got - bare).abs().max() > 1e-3
    torch.testing.assert_close(got, attached(model, artifacts, given), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("family", "sites"),
    [*((family, "all-linear") for family in LOST), ("qwen3_moe", FEED_FORWARD), ("deepseek_v3", "ffn.out")],
)
def test_what_is_refused_peft_would_have_loaded_as_something_else(
    family: str, sites: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "check_none", lambda model, maps: None)
    model = zoo(family)
    artifacts = drawn(model, sites)
    exported(model, artifacts, tmp_path / "out")
    given = inputs(family, model)
    got = peftly.outputs(peftly.loaded(model, tmp_path / "out"), given)
    assert (got - attached(model, artifacts, given)).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("family", "sites"),
    [("glm4_moe", "ffn.in"), ("ernie4_5_moe", "ffn.gate"), ("afmoe", "path:*.self_attn.gate_proj")],
)
def test_what_is_refused_alone_peft_would_have_stopped_at(
    family: str, sites: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = zoo(family)
    artifacts = drawn(model, sites)
    with pytest.raises(ts.UserError, match="would be lost"):
        exported(model, artifacts, tmp_path / "out")
    monkeypatch.setattr(experts, "check_none", lambda model, maps: None)
    exported(model, artifacts, tmp_path / "out")
    with pytest.raises(ValueError, match="Cannot convert PEFT target"):
        peftly.loaded(model, tmp_path / "out")


def test_the_refusal_names_the_maps_the_family_and_what_to_type_and_leaves_nothing(tmp_path: Path) -> None:
    model = zoo("qwen3_moe")
    with pytest.raises(ts.UserError) as caught:
        exported(model, drawn(model, FEED_FORWARD), tmp_path / "out")
    assert str(caught.value) == (
        "export --to peft: LoRA on 'model.layers.0.mlp.gate_proj' and 2 more would be lost, for peft (0.21.2) takes "
        "gate_proj, up_proj, down_proj of 'qwen3_moe' for its experts' parameters, wherever they are: keep tunescope's "
        "own folder (tunescope.save), or merge it (tunescope.merge) and save the model, or tune other maps: "
        "sites=attn.q,attn.v."
    )
    assert list(tmp_path.iterdir()) == []


def test_one_map_is_named_alone(tmp_path: Path) -> None:
    model = zoo("deepseek_v3")
    with pytest.raises(ts.UserError, match=r"LoRA on 'model\.layers\.0\.mlp\.down_proj' would be lost"):
        exported(model, drawn(model, "ffn.out"), tmp_path / "out")
