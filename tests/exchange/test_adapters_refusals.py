"""What the adapters library has and tunescope has not, and damaged or altered files: a line each, nothing run."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import theirs
import tiny
import torch
import transformers as tf
from safetensors.torch import load_file

import tunescope as ts
from tunescope.attachment.initial_artifacts import check_fits
from tunescope.exchange import convert
from tunescope.exchange.adapters import bottleneck
from tunescope.exchange.adapters.config import CONFIG, TENSORS
from tunescope.models.family import find_family

WRITTEN = {
    ("bart", "no_cross_prefix"): "cross_prefix=False, and a prefix here stands in all kinds of attention. Keep it in",
    ("bert", "inverted"): "inv_adapter='nice' is an invertible adapter behind the embeddings",
    ("bert", "norm_around"): "adapter_residual_before_ln=True norms the block's output too, and an adapter here what",
    ("bert", "prompt"): "prompt tuning, which joins the text behind the embeddings' norm and positions has no place",
    ("bert", "residual"): "residual_before_ln='post_add' adds the state behind",
    ("gpt2", "left_out"): r"leave_out=\[0\], and a prefix here stands in every layer",
    ("gpt2", "residual"): "residual_before_ln=False adds the state behind",
    ("gpt2", "unipelt"): "use_gating=True is a gate that depends on the text, as in UniPELT",
    ("llama", "loreft"): "ReFT has no place here. Keep it in the adapters library",
    ("t5", "prefix_flat"): "counts a T5 prefix among the relative positions: every token of the text seems so much",
}


def refused(family: str, folder: Path, told: str) -> None:
    with pytest.raises(ts.UserError, match=told) as caught:
        theirs.read(family, folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("family", "case"), WRITTEN)
def test_what_has_no_place_here_is_refused_by_name(family: str, case: str) -> None:
    refused(family, theirs.HERE / family / case, WRITTEN[family, case])


def test_a_prefix_of_any_model_with_relative_positions_is_refused(tmp_path: Path) -> None:
    config = {name: value for name, value in theirs.model("t5").config.to_dict().items() if name != "model_type"}
    model = tf.MT5ForConditionalGeneration(tf.MT5Config(**config)).eval()
    folder = shutil.copytree(theirs.HERE / "t5" / "prefix_flat", tmp_path / "mt5")
    written = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(written | {"model_type": "mt5", "model_class": type(model).__name__}))
    with pytest.raises(ts.UserError, match="counts a T5 prefix among the relative positions"):
        convert.read(folder, form="adapters", model=model)


def test_every_folder_is_either_compared_or_refused() -> None:
    read = [pair for pair in theirs.compared() if pair not in WRITTEN]
    assert sorted([*read, *WRITTEN]) == theirs.folders()


CONFIGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no residual": ("houlsby", {"original_ln_after": False}, "original_ln_after=False takes away the model's own"),
    "two norms": ("houlsby", {"ln_before": True, "ln_after": True}, "ln_before and ln_after, and an adapter here has"),
    "another activation": (
        "houlsby",
        {"non_linearity": "Mish"},
        "non_linearity is 'mish'; an adapter here has relu, swish, silu, gelu",
    ),
    "another scale": ("houlsby", {"scaling": "each"}, "scaling is 'each' and should be a number, 'learned' or"),
    "a scale that is not there": ("houlsby", {"scaling": "learned"}, "the adapter at 'transformer.h.0.attention_ada"),
    "a place that is off": (
        "houlsby",
        {"mh_adapter": False},
        r"has an adapter at decoder.0.self, and adapter_config.json has 0 for it, where one is expected",
    ),
    "unknown architecture": ("houlsby", {"architecture": "new"}, "'new' has no place here. Keep it in the adapters"),
    "multi-task LoRA": ("lora", {"architecture": "mtl_lora"}, "MTL-LoRA has no place here"),
    "a newer field that counts": ("lora", {"twice": True}, "does not know and that may count: twice=True"),
    "no rank": ("lora", {"r": 0}, "r is 0 and should be a positive whole number: the file was"),
    "no alpha": ("lora", {"alpha": "6"}, "alpha is '6' and should be a positive number: the file was altered"),
    "no dropout": ("lora", {"dropout": 1}, "dropout is 1 and should be from 0 to below 1"),
    "another rank": ("lora", {"r": 3}, r"has lora_A \(4, 8\) and lora_B \(16, 2\), and should have \(6, 8\)"),
    "no matrices": ("lora", {"attn_matrices": "o"}, "attn_matrices is 'o' and should name some of q, k, v"),
    "another length": ("prefix_flat", {"prefix_length": 4}, "has 96 numbers, and this model's 2 layers take 128"),
    "no number": ("houlsby", {"scaling": float("nan")}, "scaling is nan and should be a number, 'learned' or"),
    "layers that are none": ("houlsby", {"leave_out": 3}, "leave_out is 3 and should be a list of layers: the file"),
    "another composition": ("lora", {"composition_mode": "multiply"}, "composition_mode is 'multiply', where that"),
    "no length": ("prefix_flat", {"prefix_length": True}, "prefix_length is True and should be a positive whole"),
    "another network": ("prefix", {"non_linearity": "none at all"}, "'none at all', which transformers does not have"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONFIGS)
def test_a_configuration_that_means_something_else_is_refused(what: str, tmp_path: Path) -> None:
    case, changes, told = CONFIGS[what]
    refused("gpt2", theirs.configured(theirs.copied("gpt2", case, tmp_path), **changes), told)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"alpha": None}, "alpha is None and should be a positive number"),
        ({"r": [8]}, r"r is \[8\] and should be a pos"),
    ],
)
def test_an_old_file_whose_scale_cannot_be_known_is_refused(changes: Any, told: str, tmp_path: Path) -> None:
    folder = theirs.configured(theirs.copied("gpt2", "lora", tmp_path), **changes)
    whole = json.loads((folder / CONFIG).read_text()) | {"version": "adapters.1.0.1"}
    (folder / CONFIG).write_text(json.dumps(whole))
    refused("gpt2", folder, told)
    del whole["config"][next(iter(changes))]
    (folder / CONFIG).write_text(json.dumps(whole))
    refused("gpt2", folder, f"{next(iter(changes))} is None and should be a positive")


def test_another_base_than_the_file_names_is_told(tmp_path: Path) -> None:
    folder = theirs.copied("gpt2", "lora", tmp_path)
    whole = json.loads((folder / CONFIG).read_text())
    for named, notes in (("org/gpt2", []), ("org/o", ["its configuration names 'org/o'; this model is 'gpt2'"])):
        (folder / CONFIG).write_text(json.dumps(whole | {"model_name": named}))
        assert theirs.read("gpt2", folder).notes == notes


def test_a_newer_field_at_rest_is_told(tmp_path: Path) -> None:
    folder = theirs.configured(theirs.copied("gpt2", "lora", tmp_path), twice=False, added=None)
    assert theirs.read("gpt2", folder).notes == ["fields of another version, all at rest, were left out: added, twice"]


AROUND: dict[str, tuple[dict[str, Any], str]] = {
    "another family": ({"model_type": "bert"}, "made for a model with model_type 'bert', and this one's is 'gpt2'"),
    "another width": ({"hidden_size": 16}, "made for a model with hidden_size 16, and this one's is 8"),
    "no name": ({"name": None}, "name is None and should be the adapter's"),
    "another name": ({"name": "other"}, "does not belong to what adapter_config.json describes"),
    "no configuration": ({"config": "lora"}, r"does not say what the adapter is \(config\)"),
    "an empty union": ({"config": {"architecture": "union", "configs": []}}, "does not say what the adapter is"),
}


@pytest.mark.parametrize("what", AROUND)
def test_a_folder_of_another_model_or_none_is_refused(what: str, tmp_path: Path) -> None:
    changes, told = AROUND[what]
    refused("gpt2", theirs.headed(theirs.copied("gpt2", "lora", tmp_path), **changes), told)


@pytest.mark.parametrize("family", ["gemma2", "gpt_neox", "opt", "phi"])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_layout_without_a_stream_block_by_block_is_refused(family: str, parallel: bool) -> None:
    model = tiny.make(family)
    layers = f"{model.base_model_prefix}.{find_family(family).stacks['decoder'].layers}"
    width = model.get_input_embeddings().weight.shape[1]
    at = f"{layers}.0.output_adapters.adapters.one.adapter"
    tensors = {f"{at}_down.0.weight": torch.ones(2, width), f"{at}_down.0.bias": torch.ones(2)}
    tensors |= {f"{at}_up.weight": torch.ones(width, 2), f"{at}_up.bias": torch.ones(width)}
    config = {"output_adapter": True, "original_ln_before": True, "is_parallel": parallel, "non_linearity": "relu"}
    (artifact,) = bottleneck.read([config], tensors, "one", model)
    with pytest.raises(ts.UserError, match=r"'decoder\.0\.ffn' has no residual connection of its own to read"):
        check_fits(model, artifact)


def test_two_loras_in_one_union_are_refused(tmp_path: Path) -> None:
    folder = theirs.copied("gpt2", "lora", tmp_path)
    config = json.loads((folder / CONFIG).read_text())["config"]
    theirs.headed(folder, config={"architecture": "union", "configs": [config, config]})
    refused("gpt2", folder, "has 2 of 'lora', where one is expected")


A = "transformer.h.0.attn.c_attn.loras.lora.lora_A"
UP = "transformer.h.0.output_adapters.adapters.houlsby.adapter_up"
DOWN = "transformer.h.0.output_adapters.adapters.houlsby.adapter_down.0"
SCALING = "transformer.h.0.output_adapters.adapters.widths.scaling"
FLAT = "transformer.prefix_tuning.prefix_tunings.prefix_flat.self_prefix.control_trans"
NETWORK = "prefix_tuning.prefix_tunings.prefix.self_prefix"
ONE = torch.ones(1)
CHANGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a foreign key": ("lora", {"lm_head.weight": ONE}, "'lm_head.weight' does not belong to what adapter_config.json"),
    "a newer part of LoRA": ("lora", {f"{A}.scale": ONE}, "does not belong to LoRA: the file was altered, or is"),
    "one factor": ("lora", {A: None}, "'transformer.h.0.attn.c_attn' has lora_B alone"),
    "no such map": (
        "lora",
        {f"transformer.wte.loras.lora.lora_{x}": torch.ones(1) for x in "AB"},
        "LoRA on 'transformer.wte', which is no linear map of this model's layers",
    ),
    "a part too few": ("houlsby", {f"{UP}.bias": None}, "has adapter_down.0.bias, .* and should have .*up.bias"),
    "a gate": ("houlsby", {UP.replace("adapter_up", "gate"): ONE}, "has .*gate, and should"),
    "no such place": (
        "houlsby",
        {"transformer.h.7.output_adapters.adapters.houlsby.adapter_up.bias": ONE},
        "an adapter at 'transformer.h.7.output_adapters', where this model has no place for one",
    ),
    "another width": (
        "houlsby",
        {f"{UP}.weight": torch.ones(9, 2)},
        r"adapter_up.weight of the adapter at .* is \(9, 2\) beside others that ask for \(8, 2\): the file was alt",
    ),
    "another kind of width": ("houlsby", {f"{DOWN}.weight": torch.tensor(1.0)}, r"adapter_down.0.weight .* is \(\) "),
    "one scale for all channels": ("widths", {SCALING: ONE}, r"scaling of the adapter .* is \(1,\) beside others that"),
    "a copy that differs": ("prefix_flat", {FLAT: torch.ones(96)}, "is not what its copies are: the file was altered"),
    "an unknown prefix": (
        "prefix_flat",
        {FLAT.replace("self_prefix", "other"): ONE},
        "the prefix 'other' has no place in this model",
    ),
    "a part of no network": (
        "prefix",
        {f"transformer.{NETWORK}.control_trans.4.bias": ONE},
        "a prefix has .*control_trans.4.bias.* and should have wte.weight, ",
    ),
    "no part of a prefix": (
        "prefix",
        {"transformer.prefix_tuning.prefix_tunings.prefix.weight": ONE},
        "does not belong to a prefix",
    ),
    "a network that does not fit": ("prefix", {"*wte.weight": torch.ones(3, 7)}, "of the prefix's network do not fit"),
    "no embedding": ("prefix", {"*wte.weight": torch.tensor(1.0)}, "of the prefix's network do not fit"),
    "a bias that does not fit": ("prefix", {"*trans.0.bias": torch.ones(5)}, "of the prefix's network do not fit"),
    "not a number": ("lora", {A: torch.full((4, 8), torch.nan)}, "holds numbers that are not finite"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
def test_tensors_that_do_not_belong_are_refused(what: str, tmp_path: Path) -> None:
    case, changes, told = CHANGED[what]
    folder = theirs.copied("gpt2", case, tmp_path)
    keys = list(load_file(folder / TENSORS))
    ends = {
        key: value.clone() for end, value in changes.items() if end[0] == "*" for key in keys if key.endswith(end[1:])
    }
    assert ends or all(end[0] != "*" for end in changes)
    refused("gpt2", theirs.retensored(folder, ends or changes), told)


def test_a_dora_of_another_width_is_refused_as_a_lora_of_one_is(tmp_path: Path) -> None:
    folder = theirs.copied("llama", "dora", tmp_path)
    keys = [key for key in load_file(folder / TENSORS) if key.endswith("lora_B")]
    changed = {key: torch.ones(5, *load_file(folder / TENSORS)[key].shape[1:]) for key in keys}
    refused("llama", theirs.retensored(folder, changed), r"has lora_A .* and lora_B \(5, .*a model of another shape\.$")


@pytest.mark.parametrize("case", ["lora", "houlsby", "prefix_flat"])
def test_a_file_without_tensors_is_refused(case: str, tmp_path: Path) -> None:
    folder = theirs.copied("gpt2", case, tmp_path)
    theirs.retensored(folder, dict.fromkeys(load_file(folder / TENSORS)))
    refused("gpt2", folder, r"holds no |has 0 prefixes for decoder.self, where one is expected")


def test_a_pickle_is_refused_with_how_to_save_it_and_not_opened(tmp_path: Path) -> None:
    folder = theirs.copied("gpt2", "lora", tmp_path)
    (folder / TENSORS).unlink()
    (folder / "pytorch_adapter.bin").write_bytes(pickle.dumps({"a": 1})[:-1])
    refused(
        "gpt2", folder, r"is a pickle, .* not opened here. .*save_adapter\(folder, name, use_safetensors=True\); where"
    )


def test_the_advice_for_pickles_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = theirs.copied("gpt2", "prefix", tmp_path)
    shared = load_file(folder / TENSORS)
    torch.save(shared, folder / "pytorch_adapter.bin")
    (folder / TENSORS).unlink()
    with pytest.raises(ts.UserError) as caught:
        theirs.read("gpt2", folder)
    advice = str(caught.value).partition("as for prefixes: ")[2].rstrip(".")
    monkeypatch.chdir(folder)
    import safetensors.torch

    eval(advice, {"safetensors": safetensors, "torch": torch})
    assert theirs.read("gpt2", folder).artifacts[0].spec == ts.Prefix(length=3)


def test_a_fusion_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    refused("gpt2", tmp_path, "has no adapter_config.json")
    (tmp_path / "adapter_fusion_config.json").write_text("{}")
    refused("gpt2", tmp_path, "an adapter fusion, a mixture of adapters that looks at the text")


def test_a_fused_map_whose_parts_stand_head_by_head_is_refused(tmp_path: Path) -> None:
    folder = theirs.copied("gpt2", "lora", tmp_path)
    theirs.headed(folder, model_type="gpt_neox", hidden_size=None)
    name = "gpt_neox.layers.0.attention.query_key_value.loras.lora.lora"
    old = dict.fromkeys(load_file(folder / TENSORS))
    theirs.retensored(folder, {**old, f"{name}_A": torch.ones(4, 24), f"{name}_B": torch.ones(48, 2)})
    with pytest.raises(ts.UserError, match="whose parts are of unequal size, or stand head by head"):
        convert.read(folder, form="adapters", model=tiny.make("gpt_neox"))


def test_a_family_whose_blocks_nobody_says_the_place_of_is_refused(tmp_path: Path) -> None:
    folder = theirs.headed(
        theirs.copied("bert", "houlsby", tmp_path), model_type="roberta-prelayernorm", hidden_size=None
    )
    small = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    model = tf.RobertaPreLayerNormModel(tf.RobertaPreLayerNormConfig(**small, vocab_size=30))
    with pytest.raises(
        ts.UserError, match=r"blocks of family 'roberta-prelayernorm', .* known here of bart, bert, .*xlm"
    ):
        convert.read(folder, form="adapters", model=model)


def test_it_is_not_written(tmp_path: Path) -> None:
    model = theirs.model("gpt2")
    found = theirs.read("gpt2", theirs.HERE / "gpt2" / "lora")
    with pytest.raises(ts.UserError, match="Format 'adapters' is not written here"):
        convert.export(tmp_path / "out", found.artifacts, to="adapters", model=model)


def test_a_length_or_a_vector_of_another_map_is_refused(tmp_path: Path) -> None:
    folder = theirs.copied("llama", "dora", tmp_path)
    theirs.retensored(folder, {"model.layers.0.self_attn.q_proj.loras.dora.m.weight": torch.ones(7, 1)})
    refused("llama", folder, "DoRA at 'decoder.0.self.q' has 7 lengths and should have 8, of rows that are not 0")
    theirs.retensored(folder, {"model.layers.0.self_attn.q_proj.loras.dora.m.weight": None})
    refused("llama", folder, "q_proj' has no lengths of rows, which DoRA trains")
    refused("llama", theirs.configured(folder, use_dora=False), r"dora\.m\.weight' does not belong to LoRA")
    folder = theirs.copied("gpt2", "ia3", tmp_path)
    theirs.retensored(folder, {"transformer.h.0.attn.c_attn.loras.ia3.lora_B": torch.ones(15, 1)})
    refused("gpt2", folder, r"lora_B' is \(15, 1\) and should be \(16, 1\)")
    refused(
        "llama", theirs.configured(theirs.copied("llama", "dora", tmp_path / "other"), vera_d=0.1), "DoRA over VeRA"
    )
