"""The sites of a model: looked for in one pass, checked against its family's file where there is one, kept by shape."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tunescope.attachment.guards.marks import attached_to
from tunescope.attachment.sites.attention_maps import around
from tunescope.attachment.sites.hidden_ways import no_clips, no_zeros
from tunescope.attachment.sites.idle_maps import idle_beside, idle_in
from tunescope.attachment.sites.layers import shapes
from tunescope.attachment.sites.places import Found, found_at
from tunescope.attachment.sites.rest import others
from tunescope.attachment.sites.trace import Call, Seen, traced
from tunescope.errors import UserError
from tunescope.models.anatomy import Anatomy, anatomy, refuse_half
from tunescope.models.family import find_family
from tunescope.models.sites import Site, find_sites
from tunescope.models.split import is_split_over, plain_type

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class SiteMap:
    """found: every site, in order of depth. notes: layer -> what was looked for there and not found.

    idle: paths of linear maps where a delta would change nothing.
    """

    found: tuple[Found, ...]
    notes: Mapping[str, str]
    idle: frozenset[str] = frozenset()


_BY_SHAPE: dict[tuple[object, ...], SiteMap] = {}
_SITES: weakref.WeakKeyDictionary[Anatomy, Mapping[str, Site]] = weakref.WeakKeyDictionary()


def sites_of(model: PreTrainedModel) -> Mapping[str, Site]:
    """Every site by name ("decoder.0.ffn.in"), in order of depth; there may be none.

    They are what one pass of the model shows. A family's file is believed where nothing can be run, on "meta".

    Raises UserError for the decoder of an encoder-decoder alone, for a file of the family that says otherwise than the
    pass, and for a model that cannot be run on a short text.
    """
    now = anatomy(model)
    refuse_half(model, now.kind)
    if now not in _SITES:
        _SITES[now] = MappingProxyType(_bound(model))
    return _SITES[now]


def site_map(model: PreTrainedModel) -> SiteMap:
    """What a pass of the model shows: looked for once for all models of the same class, config and modules."""
    shape = _shape(model)
    if shape not in _BY_SHAPE:
        attached: Any = attached_to(model)
        if attached is not None and not hasattr(attached, "paused"):
            raise UserError("A bank is attached, and sites are looked for while nothing is: detach() first.")
        bare = nullcontext() if attached is None else attached.paused()
        whole = no_zeros(model), no_clips(model)
        with bare, torch.device("cpu"), torch.inference_mode(False), torch.enable_grad(), whole[0], whole[1]:
            layers = traced(model)
            found = mapped(layers)
            beside = idle_beside(model, {call.path for seen in layers for call in seen.maps})
            _BY_SHAPE[shape] = replace(found, idle=found.idle | beside)
    return _BY_SHAPE[shape]


def can_look(model: PreTrainedModel) -> bool:
    """Whether a pass can show the sites, or one of a model like it did: not of weights on "meta", nor of parts.

    A layer that is sharded has no weights any more when gradients within it are asked for.
    """
    if anatomy(model).device.type == "meta":
        return False
    return not is_split_over(model) or _shape(model) in _BY_SHAPE


def mapped(layers: Sequence[Seen]) -> SiteMap:
    """The sites of all layers: of those that look the same, one is looked into."""
    known: dict[object, tuple[Seen, list[Found], str, set[str]]] = {}
    found: list[Found] = []
    notes: dict[str, str] = {}
    still: set[str] = set()
    for seen in layers:
        name = f"{seen.layer.stack}.{seen.layer.index}"
        if seen.signature not in known:
            known[seen.signature] = (seen, *_of_layer(seen, name), idle_in(seen))
        like, sites, note, idle = known[seen.signature]
        cut = len(f"{like.layer.stack}.{like.layer.index}")
        found += [one.moved(name + one.name[cut:], like.layer.path, seen.layer.path) for one in sites]
        still |= {seen.layer.path + path.removeprefix(like.layer.path) for path in idle}
        if note:
            notes[name] = note
    return SiteMap(tuple(found), notes, frozenset(still))


def _of_layer(seen: Seen, name: str) -> tuple[list[Found], str]:
    sites: list[Found] = []
    taken: set[Call] = set()
    notes: list[str] = []
    for one in seen.attention:
        found = around(seen, one)
        sites += found.sites
        taken |= found.maps
        notes += [f"{one.place.name.rpartition('.')[2]}.{note}" for note in found.notes]
    more, note = others(seen, name, taken)
    kept, shared = _used_once([*sites, *more], seen)
    return kept, "; ".join(one for one in (*notes, note, shared) if one)


def _used_once(sites: list[Found], seen: Seen) -> tuple[list[Found], str]:
    """Without whole blocks of maps that a pass goes through several times: there is no telling which one it is in."""
    often = {path for path, times in Counter(one.path for one in seen.maps).items() if times > 1}
    kept = [one for one in sites if one.x.path == one.h.path or not {one.x.path, one.h.path} & often]
    gone = dict.fromkeys(one.name.split(".", 2)[2] for one in sites if one not in kept)
    return kept, f"{', '.join(gone)}: of maps that are used several times in a pass" if gone else ""


def _bound(model: PreTrainedModel) -> dict[str, Site]:
    now, family = anatomy(model), find_family(model.config.model_type)
    if not can_look(model):
        return find_sites(model, now.kind)
    modules = dict(model.base_model.named_modules())
    named = None if family is None else find_sites(model, now.kind)
    found = {one.name: one for one in site_map(model).found}
    if named is None:
        return {name: one.site(modules) for name, one in found.items()}
    paths = {module: path for path, module in modules.items()}
    told = {name: found_at(site, paths) for name, site in named.items()}
    if told != found:
        _refuse_wrapped(modules)
    check_same(told, found, model.config.model_type)
    return named


def _refuse_wrapped(modules: Mapping[str, nn.Module]) -> None:
    """UserError where peft's adapter stands around a map, and the map is another module than the family's file has."""
    for path, module in modules.items():
        if isinstance(getattr(module, "base_layer", None), nn.Module):
            name = " and ".join(map(repr, getattr(module, "active_adapters", []))) or "none active"
            raise UserError(
                f"peft's adapter ({name}) stands around {path}, so no site of this model can be told by name. Merge it "
                "first, with peft's model.merge_and_unload(), or ask for linear maps by their paths: sites=all-linear."
            )


def check_same(told: Mapping[str, Found], found: Mapping[str, Found], family: str) -> None:
    """Raises UserError where a family's file says otherwise than a pass of the model shows."""
    for name in sorted(told.keys() | found.keys()):
        if told.get(name) != found.get(name):
            raise UserError(
                f"Family {family!r}: its file has site {name!r} at {told.get(name, 'no place')}, and a pass of this "
                f"model has it at {found.get(name, 'no place')}: the model is of another layout than mapped."
            )


def _shape(model: PreTrainedModel) -> tuple[object, ...]:
    """Equal for models whose sites lie at the same places."""
    config = {key: value for key, value in model.config.to_dict().items() if not key.startswith("_") and key != "dtype"}
    named = model.base_model.named_modules()
    modules = tuple((path, plain_type(module), shapes(module)) for path, module in named)
    return plain_type(model), json.dumps(config, sort_keys=True, default=str), modules
