"""LoRA as the `adapters` library stores it (Hu et al. 2021), read into `LoRA`.

h + alpha / r B A x with lora_A (r, in) and lora_B (out, r). In GPT-2's fused map the m chosen of q, k and v stand one
after the other: lora_A (m r, in) and lora_B (m out / 3, r).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.sites.choice import every_site, parts_of_maps
from tunescope.attachment.sites.site_map import sites_of
from tunescope.errors import UserError
from tunescope.exchange.adapters import gain
from tunescope.exchange.adapters.config import CONFIG, KEEP, TENSORS, number
from tunescope.exchange.peft.lora import Factors, within
from tunescope.exchange.peft.modules import find
from tunescope.exchange.site_names import selectors
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.deltas.lora import LoRA
from tunescope.models.anatomy import anatomy
from tunescope.models.sites import Site, weight_shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PART = r"(.+)\.loras\.{}\.lora_(A|B)"


def read(config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, model: PreTrainedModel) -> list[Artifact]:
    """One LoRA for every rank that occurs, at exactly the sites that the keys name: one rank, but in narrow maps.

    Raises:
        UserError: a key that names no linear map of the model, one factor without the other, shapes that fit neither
            the model nor the configuration.
    """
    rank, alpha, dropout = number(config, "r", whole=True), number(config, "alpha"), config.get("dropout") or 0.0
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise UserError(f"{CONFIG}: dropout is {dropout!r} and should be from 0 to below 1: the file was altered.")
    lengths, tensors = gain.lengths(config, tensors, name)
    groups: dict[int, dict[str, Factors]] = {}
    gains: dict[str, Tensor] = {}
    for path, (a, b) in _factors(tensors, name).items():
        _check_shapes(config, path, a, b, model)
        if lengths is not None:
            if path not in lengths:
                raise UserError(f"{TENSORS}: {path!r} has no lengths of rows, which DoRA trains: the file was altered.")
            whole = _only(path, model)
            gains[whole.name], b = gain.rows(whole, lengths[path], a, b)
        for site, part in _by_site(config, path, a, b, model).items():
            narrow = within(*part)
            groups.setdefault(len(narrow[0]), {})[site] = narrow
    known = list(sites_of(model))
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    made = []
    for width, parts in sorted(groups.items()):
        params: Params = {}
        for place in (one for one in every_site(model).values() if one.name in parts):
            for key, value in zip("ab", parts[place.name], strict=True):
                params[f"{place.name}:{key}"] = value.to(dtype, copy=True).contiguous()
            if lengths is not None:
                params |= gain.rows_at(place, gains[place.name].to(dtype))
        scaled = None if alpha == rank else alpha / rank * width
        spec = LoRA(
            rank=width, alpha=scaled, dropout=float(dropout), sites=selectors(known, parts), gain=lengths is not None
        )
        made.append(Artifact(spec, params))
    return made


def read_vectors(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, model: PreTrainedModel
) -> list[Artifact]:
    """(IA)^3: a gain at exactly the sites that the keys name, beside factors of 0. Raises UserError as `read` does."""
    alpha, known, every = number(config, "alpha"), list(sites_of(model)), every_site(model)
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    found: dict[str, Params] = {}
    for key, value in tensors.items():
        match = re.fullmatch(PART.format(re.escape(name)), key)
        if match is None or match[2] != "B":
            raise UserError(f"{TENSORS}: {key!r} does not belong to (IA)^3: the file was altered.")
        sites = _sites(match[1], model)
        chosen, rows, d_in = _places(config, match[1], sites)
        if value.shape != (rows * len(chosen), 1):
            raise UserError(
                f"{TENSORS}: {key!r} is {tuple(value.shape)} and should be {(rows * len(chosen), 1)}: the file was "
                "altered, or made for a model of another shape."
            )
        parts = {site.name: value.new_ones(rows) for site in sites if alpha != 1}  # a fused map's are all scaled
        parts |= zip((site.name for site in chosen), torch.split(value.flatten(), rows), strict=True)
        for place, part in parts.items():
            vector = alpha * part.to(dtype)
            factors = {f"{place}:a": vector.new_zeros(1, d_in), f"{place}:b": vector.new_zeros(rows, 1)}
            found[place] = factors | gain.rows_at(every[place], vector)
    if not found:
        raise UserError(f"{TENSORS} holds no (IA)^3 of the name {name!r}, and {CONFIG} says that it does.")
    params: Params = {key: one for site in every if site in found for key, one in found[site].items()}
    return [Artifact(LoRA(rank=1, sites=selectors(known, found), gain=True), params)]


def _factors(tensors: Mapping[str, Tensor], name: str) -> dict[str, Factors]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        match = re.fullmatch(PART.format(re.escape(name)), key)
        if match is None:
            raise UserError(
                f"{TENSORS}: {key!r} does not belong to LoRA: the file was altered, or is of a newer version."
            )
        found.setdefault(match[1], {})[match[2]] = value
    for path, pair in found.items():
        if len(pair) < 2:
            raise UserError(f"{TENSORS}: {path!r} has lora_{next(iter(pair))} alone: the file was altered or cut.")
    if not found:
        raise UserError(f"{TENSORS} holds no LoRA of the name {name!r}, and {CONFIG} says that it does.")
    return {path: (pair["A"], pair["B"]) for path, pair in found.items()}


def _by_site(config: Mapping[str, Any], path: str, a: Tensor, b: Tensor, model: PreTrainedModel) -> dict[str, Factors]:
    """Site -> its factors: one, or one for each chosen part of a fused map."""
    chosen, rows, _ = _places(config, path, _sites(path, model))
    pairs = zip(torch.split(a, config["r"]), torch.split(b, rows), strict=True)
    return {site.name: pair for site, pair in zip(chosen, pairs, strict=True)}


def _check_shapes(config: Mapping[str, Any], path: str, a: Tensor, b: Tensor, model: PreTrainedModel) -> None:
    chosen, rows, d_in = _places(config, path, _sites(path, model))
    rank = config["r"]
    if a.shape != (rank * len(chosen), d_in) or b.shape != (rows * len(chosen), rank):
        raise UserError(
            f"{TENSORS}: {path!r} has lora_A {tuple(a.shape)} and lora_B {tuple(b.shape)}, and should have "
            f"({rank * len(chosen)}, {d_in}) and ({rows * len(chosen)}, {rank}): the file was altered, or made for a "
            "model of another shape."
        )


def _places(config: Mapping[str, Any], path: str, sites: list[Site]) -> tuple[list[Site], int, int]:
    """Those of a map's sites that were trained, the rows of each, and the width of what goes in."""
    d_out, d_in = weight_shape(sites[0].h.module)
    return _chosen(config, path, sites), d_out // len(sites), d_in


def _sites(path: str, model: PreTrainedModel) -> list[Site]:
    module = find(model, path)
    sites = parts_of_maps(model).get(module, []) if module is not None else []
    if not sites:
        raise UserError(f"{TENSORS}: LoRA on {path!r}, which is no linear map of this model's layers. {KEEP}.")
    return sites


def _only(path: str, model: PreTrainedModel) -> Site:
    """The site of a map that is one. Raises UserError for a fused one, whose lengths that library cannot have."""
    sites = _sites(path, model)
    if len(sites) > 1:
        raise UserError(f"{TENSORS}: DoRA on {path!r}, a fused map, which that library does not train. {KEEP}.")
    return sites[0]


def _chosen(config: Mapping[str, Any], path: str, sites: list[Site]) -> list[Site]:
    if len(sites) == 1:
        return sites
    if not all(isinstance(site.h.columns, slice) and site.h.width == sites[0].h.width for site in sites):
        raise UserError(f"{TENSORS}: LoRA on {path!r}, whose parts are of unequal size, or stand head by head. {KEEP}.")
    matrices = config.get("attn_matrices")
    chosen = [site for site in sites if isinstance(matrices, list) and site.name.rpartition(".")[2] in matrices]
    if not chosen:
        raise UserError(
            f"{CONFIG}: attn_matrices is {matrices!r} and should name some of q, k, v: the file was altered."
        )
    return chosen
