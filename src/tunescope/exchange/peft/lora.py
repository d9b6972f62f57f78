"""LoRA as peft stores it (Hu et al. 2021; rank-stabilised: Kalajdzievski 2023), read into `LoRA`.

peft: h + scale B A x with lora_A (r, in) and lora_B (out, r) for a whole linear map, however that map is stored. The
scale is alpha / r, or alpha / sqrt(r) with use_rslora; r and alpha are a module's own where a pattern names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.sites.choice import every_site, parts_of_maps
from tunescope.attachment.sites.site_map import sites_of
from tunescope.errors import UserError
from tunescope.exchange.peft import dora
from tunescope.exchange.peft.config import CONFIG, KNOWN_STARTS, MERGE, TENSORS
from tunescope.exchange.peft.lora_fields import check_shapes, check_target, is_target, scale_of
from tunescope.exchange.peft.modules import find, paths
from tunescope.exchange.peft.patches import Patches
from tunescope.exchange.peft.starts import without_start
from tunescope.exchange.site_names import selectors
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.deltas.lora import LoRA
from tunescope.models.anatomy import anatomy
from tunescope.models.sites import Site, weight_shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KEY = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.weight")

MAGNITUDE = re.compile(r"base_model\.model\.(.+)\.lora_magnitude_vector")

Factors = tuple[Tensor, Tensor]  # a (rank, in), b (out, rank)


def read(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], patches: Patches
) -> tuple[list[Artifact], list[str]]:
    """One LoRA for every rank and scale that occurs, at exactly the sites that the keys name, with notes.

    patches: what else of the file changes the model.

    Raises:
        UserError: a key that names no linear map of the model, or that target_modules does not; shapes that fit neither
            the model nor the configuration.
    """
    model = patches.model
    modules = parts_of_maps(model)
    given: dict[nn.Module, str] = {}
    groups: dict[tuple[int, float], dict[str, Params]] = {}
    magnitudes, tensors = _magnitudes(config, tensors)
    for path, (a, b) in _factors(tensors).items():
        sites = _sites(model, modules, path, config)
        check_shapes(config, path, weight_shape(sites[0].h.module), a, b)
        if sites[0].h.module in given:
            raise UserError(f"{TENSORS}: {given[sites[0].h.module]!r} and {path!r} are one map: the file was altered.")
        given[sites[0].h.module] = path
        scale = scale_of(config, path, len(a))
        if config.get("init_lora_weights") in KNOWN_STARTS:
            a, b = without_start(config, sites[0].h.module, scale, a, b)
        rows: Params = {}
        if magnitudes is not None:
            rows = dora.rows_of(patches, sites[0].h.module, path, _magnitude(magnitudes, path), scale * (b @ a))
            b = rows["gain"].to(torch.promote_types(b.dtype, torch.float32))[:, None] * b
        for site in sites:
            columns = slice(None) if site.h.columns is None else site.h.columns
            part = dict(zip("ab", within(a, b[columns]), strict=True))
            part |= {name: value[columns] for name, value in rows.items()}
            groups.setdefault((len(part["a"]), scale), {})[site.name] = part
    known = list(sites_of(model))
    made = [_artifact(config, *key, groups[key], known, model) for key in sorted(groups)]
    return made, _notes(config, modules, given, len(made), model)


def _magnitudes(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor] | None, dict[str, Tensor]]:
    """DoRA's magnitudes by module, None where the file is none of DoRA; and the other tensors."""
    if not config.get("use_dora"):
        return None, dict(tensors)
    found = {match[1]: value for key, value in tensors.items() if (match := MAGNITUDE.fullmatch(key))}
    return found, {key: value for key, value in tensors.items() if not MAGNITUDE.fullmatch(key)}


def _magnitude(magnitudes: Mapping[str, Tensor], path: str) -> Tensor:
    if path not in magnitudes:
        raise UserError(f"{TENSORS}: {path!r} lacks lora_magnitude_vector: the file was altered or cut.")
    return magnitudes[path]


def _notes(
    config: Mapping[str, Any],
    modules: Mapping[nn.Module, list[Site]],
    given: Mapping[nn.Module, str],
    n_made: int,
    model: PreTrainedModel,
) -> list[str]:
    notes = _start_notes(config)
    fused = [path for module, path in given.items() if len(modules[module]) > 1]
    if fused:
        notes.append(f"{fused[0]} and its like are fused maps: their LoRA stands at the sites of their parts")
    if n_made > 1:
        notes.append(f"{n_made} combinations of rank and scale: one LoRA for each")
    names = paths(model, headed=False)
    absent = [names[module] for module in modules if module not in given and is_target(config, names[module])]
    if absent and not config.get("layers_to_transform") and not config.get("exclude_modules"):
        others = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        notes.append(f"the file has no LoRA for {absent[0]}{others}, which target_modules names")
    return notes


def _start_notes(config: Mapping[str, Any]) -> list[str]:
    start = config.get("init_lora_weights")
    if start not in KNOWN_STARTS:
        return []
    return [
        f"init_lora_weights={start!r} took a product out of the base: the LoRA here, of twice the rank, does it too"
    ]


def _factors(tensors: Mapping[str, Tensor]) -> dict[str, Factors]:
    """Module path -> its two factors. Raises UserError for one without the other, and for none at all."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        match = KEY.fullmatch(key)
        if match is None:
            raise UserError(
                f"{TENSORS}: {key!r} does not belong to LoRA on linear maps: the file was altered, or holds more than "
                "its configuration says."
            )
        found.setdefault(match[1], {})[match[2]] = value
    for path, pair in found.items():
        if len(pair) < 2:
            raise UserError(f"{TENSORS}: {path!r} has lora_{next(iter(pair))} alone: the file was altered or cut.")
    if not found:
        raise UserError(f"{TENSORS} holds no lora_A and lora_B: it is no LoRA checkpoint of peft.")
    return {path: (pair["A"], pair["B"]) for path, pair in found.items()}


def _sites(
    model: PreTrainedModel, modules: Mapping[nn.Module, list[Site]], path: str, config: Mapping[str, Any]
) -> list[Site]:
    check_target(config, path)
    module = find(model, path)
    if module is None or module not in modules:
        is_there = module is not None or path in dict(model.named_modules())
        raise UserError(
            f"{TENSORS}: LoRA on {path!r}, "
            + ("a module outside the layers' linear maps" if is_there else "which this model does not have")
            + f". Here LoRA acts on: {', '.join(_shown(modules.values()))}. {MERGE}"
        )
    return modules[module]


def _shown(sites: Iterable[list[Site]]) -> list[str]:
    return sorted({site.name.split(".", 2)[-1] for group in sites for site in group})


def within(a: Tensor, b: Tensor) -> Factors:
    """The same product at a rank that the map can have, in float64: a larger one says nothing more."""
    d_out, d_in = len(b), a.shape[1]
    if len(a) <= min(d_out, d_in):
        return a, b
    product = b.double() @ a.double()  # rounded to what it is given in, it would be less than the two were
    if d_out <= d_in:
        return product, torch.eye(d_out, dtype=product.dtype)
    return torch.eye(d_in, dtype=product.dtype), product


def _artifact(
    config: Mapping[str, Any],
    rank: int,
    scale: float,
    parts: Mapping[str, Params],
    known: list[str],
    model: PreTrainedModel,
) -> Artifact:
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    params: Params = {}
    for name in every_site(model):
        if name in parts:
            params |= {f"{name}:{key}": value.to(dtype, copy=True) for key, value in parts[name].items()}  # none shared
    alpha = None if scale == 1 else scale * rank
    dropout = float(config.get("lora_dropout") or 0.0)
    if not 0 <= dropout < 1:
        raise UserError(f"{CONFIG}: lora_dropout is {dropout} and should be from 0 to below 1: the file was altered.")
    spec = LoRA(
        rank=rank, alpha=alpha, dropout=dropout, sites=selectors(known, parts), gain=bool(config.get("use_dora"))
    )
    return Artifact(spec, params)
