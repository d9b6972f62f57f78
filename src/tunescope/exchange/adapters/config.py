"""adapter_config.json of the `adapters` library (AdapterHub): its methods, checked, and what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from packaging.version import InvalidVersion, Version
from torch import Tensor

from tunescope.errors import UserError
from tunescope.exchange.foreign_files import base_notes, read_json, read_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG = "adapter_config.json"
TENSORS = "adapter.safetensors"
PICKLE = "pytorch_adapter.bin"
HEADS = ("model_head.safetensors", "pytorch_model_head.bin")
FUSION = "adapter_fusion_config.json"

SEEDS = {"architecture", "init_weights", "init_weights_seed"}
BOTTLENECK = SEEDS | {
    "adapter_residual_before_ln",
    "cross_adapter",
    "dropout",
    "factorized_phm_W",
    "factorized_phm_rule",
    "hypercomplex_nonlinearity",
    "inv_adapter_reduction_factor",
    "is_parallel",
    "learn_phm",
    "leave_out",
    "ln_after",
    "ln_before",
    "mh_adapter",
    "non_linearity",
    "original_ln_after",
    "original_ln_before",
    "output_adapter",
    "phm_bias",
    "phm_c_init",
    "phm_dim",
    "phm_init_range",
    "phm_layer",
    "phm_rank",
    "reduction_factor",
    "residual_before_ln",
    "scaling",
    "shared_W_phm",
    "shared_phm_rule",
    "stochastic_depth",
}
PREFIX = SEEDS | {
    "bottleneck_size",
    "cross_prefix",
    "dropout",
    "encoder_prefix",
    "flat",
    "leave_out",
    "non_linearity",
    "prefix_length",
    "shared_gating",
}
LORA = SEEDS | {
    "alpha",
    "attn_matrices",
    "composition_mode",
    "dropout",
    "dtype",
    "intermediate_lora",
    "leave_out",
    "output_lora",
    "r",
    "selfattn_lora",
    "use_dora",
    "vera_b",
    "vera_d",
}
KINDS = {"bottleneck": BOTTLENECK, "prefix_tuning": PREFIX, "lora": LORA}
REFUSED = {
    "inv_adapter": "an invertible adapter behind the embeddings",
    "use_gating": "a gate that depends on the text, as in UniPELT",
}
OLD_NAMES = {"gelu": "gelu_new", "gelu_orig": "gelu"}  # of activations, in files that name no version
OTHERS = {
    "mtl_lora": "MTL-LoRA",
    "prompt_tuning": "prompt tuning, which joins the text behind the embeddings' norm and positions",
    "reft": "ReFT",
}
KEEP = "Keep it in the adapters library"


def opened(folder: Path, model: PreTrainedModel) -> tuple[str, list[dict[str, Any]], dict[str, Tensor], list[str]]:
    """The name of the adapter, its configurations (one, or those of a union), its tensors, and notes.

    Raises:
        UserError: a file is missing, damaged or a pickle; a fusion; another model type or width than this model's; a
            method, or a field that is set, that has no place here.
    """
    if (folder / FUSION).exists() and not (folder / CONFIG).exists():
        raise UserError(f"{folder} holds an adapter fusion, a mixture of adapters that looks at the text. {KEEP}.")
    whole = read_json(folder / CONFIG)
    configs, notes = _configs(whole), base_notes(whole.get("model_name"), model)
    name = whole.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"{CONFIG}: name is {name!r} and should be the adapter's: the file was altered.")
    _check_model(whole, model)
    for config in configs:
        notes += checked(config)
    if not (folder / TENSORS).exists() and (folder / PICKLE).exists():
        raise UserError(
            f"{folder / PICKLE} is a pickle, which can run code and is not opened here. Save it again with "
            "model.save_adapter(folder, name, use_safetensors=True); where that stops at shared memory, as for "
            "prefixes: safetensors.torch.save_file({k: v.clone() for k, v in "
            f"torch.load('{PICKLE}', weights_only=True).items()}}, '{TENSORS}')."
        )
    heads = [file for file in HEADS if (folder / file).exists()]
    if heads:
        notes.append(
            f"the prediction head in {heads[0]} was left out: only the adapter was read. Where it was trained too, the "
            "outputs need it"
        )
    return name, configs, _whole_precision(read_tensors(folder / TENSORS)), [*notes, *_as_loaded(whole)]


def _whole_precision(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is stored in half precision in float32, in which the library computes with it."""
    return {
        key: value.to(torch.promote_types(value.dtype, torch.float32)) if value.is_floating_point() else value
        for key, value in tensors.items()
    }


def checked(config: Mapping[str, Any]) -> list[str]:
    """Notes on fields that are not known and at rest. Raises UserError for a method or a field that counts."""
    kind = architecture(config)
    if kind in OTHERS or kind not in KINDS:
        raise UserError(f"{CONFIG}: {OTHERS.get(kind, repr(kind))} has no place here. {KEEP}.")
    for field, meaning in REFUSED.items():
        if not _rests(config.get(field)):
            raise UserError(f"{CONFIG}: {field}={config[field]!r} is {meaning}, which has no place here. {KEEP}.")
    if kind == "lora" and (mode := config.get("composition_mode", "add")) not in ("add", "scale"):
        raise UserError(f"{CONFIG}: composition_mode is {mode!r}, where that library has add and scale.")
    if kind == "lora" and not _rests(config.get("use_dora")) and not _rests(config.get("vera_d")):
        raise UserError(f"{CONFIG}: DoRA over VeRA, whose maps are shared, has no place here. {KEEP}.")
    out = config.get("leave_out") or []
    if not isinstance(out, list) or not all(isinstance(layer, int) for layer in out):
        raise UserError(f"{CONFIG}: leave_out is {out!r} and should be a list of layers: the file was altered.")
    unknown = sorted(config.keys() - KINDS[kind] - REFUSED.keys())
    counting = {field: config[field] for field in unknown if not _rests(config[field])}
    if counting:
        shown = ", ".join(f"{field}={value!r}" for field, value in counting.items())
        raise UserError(f"{CONFIG} has fields that this version does not know and that may count: {shown}. {KEEP}.")
    notes = [f"fields of another version, all at rest, were left out: {', '.join(unknown)}"] if unknown else []
    if kind != "lora" and (config.get("dropout") or config.get("stochastic_depth")):
        notes.append("its dropout was left out: it acts in training alone")
    return notes


def architecture(config: Mapping[str, Any]) -> str:
    """ "bottleneck", "prefix_tuning", "lora", or what else the field says; the library writes a bottleneck as none."""
    return str(config.get("architecture") or "bottleneck")


def number(config: Mapping[str, Any], field: str, *, whole: bool = False) -> Any:
    """A field that must be a positive number. Raises UserError where it is none."""
    value = config.get(field)
    allowed = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or not 0 < value < float("inf"):
        kind = "positive whole number" if whole else "positive number"
        raise UserError(f"{CONFIG}: {field} is {value!r} and should be a {kind}: the file was altered.")
    return value


def _configs(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = whole.get("config")
    given = found.get("configs") if isinstance(found, dict) and found.get("architecture") == "union" else [found]
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) and one for one in given):
        raise UserError(f"{CONFIG} does not say what the adapter is (config): it is another file, or was altered.")
    return given


def _check_model(whole: Mapping[str, Any], model: PreTrainedModel) -> None:
    for field in ("model_type", "hidden_size"):
        own, asked = getattr(model.config, field, None), whole.get(field)
        if asked is not None and own is not None and asked != own:
            raise UserError(f"{CONFIG}: it was made for a model with {field} {asked!r}, and this one's is {own!r}.")


def _as_loaded(whole: Mapping[str, Any]) -> list[str]:
    """Older files are changed as the library itself does on loading; before 1.1.0 it computed LoRA with the scale 1."""
    config, version = whole["config"], str(whole.get("version", ""))
    if "version" not in whole and (old := config.get("non_linearity")) in list(OLD_NAMES):
        config["non_linearity"] = OLD_NAMES[old]
    if config.get("architecture") != "lora" or not _is_before(version, "1.1.0"):
        return []
    alpha, rank = number(config, "alpha"), number(config, "r", whole=True)
    if alpha == rank:
        return []
    config["alpha"] = rank
    return [f"{version} computed LoRA with the scale 1 whatever alpha said: read so, as the library itself does"]


def _is_before(version: str, other: str) -> bool:
    """Of "adapters.1.0.1": whether it is earlier; False for what names no version of that library."""
    try:
        return version.startswith("adapters.") and Version(version.removeprefix("adapters.")) < Version(other)
    except InvalidVersion:
        return False


def _rests(value: object) -> bool:
    return value in (None, False, "", "none") or value == [] or value == {}
