"""Which sites a delta asks for: by name, as linear maps by their paths, or as all linear maps."""

from __future__ import annotations

import fnmatch
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import nn

from tunescope.attachment.sites.places import as_columns, found_at
from tunescope.attachment.sites.site_map import can_look, site_map, sites_of
from tunescope.errors import UserError
from tunescope.methods.artifact import ALL_LINEAR, Artifact, SiteDelta, Spec
from tunescope.models.anatomy import Anatomy, anatomy
from tunescope.models.sites import Site, Tap, is_map, select, weight_shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel


PATH = "path:"
_MAPS: weakref.WeakKeyDictionary[Anatomy, Mapping[str, Site]] = weakref.WeakKeyDictionary()


def linear_maps(model: PreTrainedModel) -> Mapping[str, Site]:
    """Every linear map of the base model as a site, by its path there: no head, and nothing of the embeddings.

    Nor one where a delta would change nothing (`idle`), as Mamba's dt_proj and a pooler, nor what is of an adapter of
    peft's that stands around one.
    """
    now = anatomy(model)
    if now not in _MAPS:
        idle = site_map(model).idle if can_look(model) else frozenset()
        outside = {id(model.get_output_embeddings()), id(now.table)}
        outside |= _of_wrappers(model.base_model)
        named = model.base_model.named_modules()
        _MAPS[now] = MappingProxyType(
            {path: _map(path, one) for path, one in named if path not in idle and _counts(one, outside)}
        )
    return _MAPS[now]


def _of_wrappers(base: nn.Module) -> set[int]:
    """What lies within peft's wrappers of maps, but for the maps themselves."""
    found: set[int] = set()
    for wrapper in base.modules():
        inner = getattr(wrapper, "base_layer", None)
        if isinstance(inner, nn.Module):
            found |= {id(one) for one in wrapper.modules()} - {id(one) for one in inner.modules()}
    return found


def _counts(module: nn.Module, outside: set[int]) -> bool:
    return is_map(module) and id(module) not in outside


def _map(path: str, module: nn.Module) -> Site:
    rows, columns = weight_shape(module)
    return Site(path, Tap.on(module, "in", None, columns), Tap.on(module, "out", None, rows), None, 1)


def every_site(model: PreTrainedModel) -> dict[str, Site]:
    """By name: the linear maps by their paths, and the sites."""
    return {**linear_maps(model), **sites_of(model)}


def sites_for(model: PreTrainedModel, spec: SiteDelta) -> list[Site]:
    """The sites that a delta asks for, in the order of its selectors.

    A selector is a name as `models.sites` has it, or "path:GLOB" for the linear maps whose path from the base model
    matches (`path:*.query_key_value`), or "all-linear". A site by a path is named by that path.

    Raises UserError for a selector that selects nothing.
    """
    family, found = model.config.model_type, dict[str, Site]()
    for selector in spec.sites:
        if selector == ALL_LINEAR or selector.startswith(PATH):
            found |= _by_path(model, selector, str(spec))
        else:
            sites = sites_of(model)
            if not sites:
                raise UserError(
                    f"{spec} asks for site {selector!r}, and no site of family {family!r} has a name here. Its linear "
                    "maps can be had by their paths: sites=all-linear, or sites=path:GLOB."
                )
            found |= {site.name: site for site in select(sites, (selector,), str(spec), family)}
    return list(found.values())


def places_of(model: PreTrainedModel, spec: Spec) -> dict[str, str]:
    """Site -> where it lies in the model, as a manifest has it; of a delta at sites, else empty."""
    if not isinstance(spec, SiteDelta) or spec.sites == ("pooled",):
        return {}
    paths = {module: path for path, module in model.base_model.named_modules()}
    return {site.name: str(found_at(site, paths)) for site in sites_for(model, spec)}


def check_places(model: PreTrainedModel, artifact: Artifact) -> None:
    """UserError for a delta that was saved where its sites lie elsewhere than in this model."""
    if artifact.places is None:
        return
    now = places_of(model, artifact.spec)
    for name in sorted(artifact.places.keys() | now.keys()):
        then, here = artifact.places.get(name, "nowhere"), now.get(name, "nowhere")
        if then != here:
            raise UserError(
                f"{artifact.spec} was made where site {name!r} is {then}, and here it is {here}: load the model that "
                "it was tuned on, with the transformers that it was tuned with."
            )


def _by_path(model: PreTrainedModel, selector: str, asker: str) -> dict[str, Site]:
    maps = linear_maps(model)
    if not maps:
        raise UserError(f"{asker} asks for {selector!r}, and family {model.config.model_type!r} has no linear map.")
    if selector == ALL_LINEAR:
        return dict(maps)
    glob = selector.removeprefix(PATH)
    found = {path: site for path, site in maps.items() if fnmatch.fnmatchcase(path, glob)}
    if not found and _stacked(model, glob):
        raise UserError(
            f"{asker} asks for {selector!r}: {_stacked(model, glob)} is no linear map but the weights of several in "
            "one tensor. Tune the whole block (sites=ffn), or all weights (full)."
        )
    if not found and (still := _idle(model, glob)):
        raise UserError(
            f"{asker} asks for {selector!r}: on a short text the model does not call {still}, or nothing hangs on what "
            "it gives, so a delta there would not act. Ask for other maps, or tune all weights (full)."
        )
    if not found:
        have = sorted({path.rpartition(".")[2] for path in maps})
        raise UserError(
            f"{asker} asks for {selector!r}, which matches no linear map of family {model.config.model_type!r}. Their "
            f"paths end in: {', '.join(have)}; a * stands for anything, as in path:*.{have[0] if have else 'q_proj'}."
        )
    return found


def _idle(model: PreTrainedModel, glob: str) -> str:
    """The first linear map that matches of those where a delta would change nothing; "" for none."""
    idle = site_map(model).idle if can_look(model) else frozenset()
    return next((path for path in sorted(idle) if fnmatch.fnmatchcase(path, glob)), "")


def _stacked(model: PreTrainedModel, glob: str) -> str:
    """The first parameter of three axes whose path, or its module's, matches; "" for none."""
    named = ((path, value) for path, value in model.base_model.named_parameters() if value.dim() == 3)
    matches = (path for path, _ in named for one in (path, path.rpartition(".")[0]) if fnmatch.fnmatchcase(one, glob))
    return next(matches, "")


def parts_of_maps(model: PreTrainedModel) -> dict[nn.Module, list[Site]]:
    """Linear map -> the sites that it is made of: one, or q, k and v where the model fuses them.

    A map that no sites have in whole, a gate beside the query for one, is a site by its path.
    """
    found: dict[nn.Module, list[Site]] = {}
    for site in sites_of(model).values():
        if site.is_linear:
            found.setdefault(site.h.module, []).append(site)
    whole = {module: sites for module, sites in found.items() if _is_whole(module, sites)}
    return {site.h.module: whole.get(site.h.module, [site]) for site in linear_maps(model).values()} | whole


def _is_whole(module: nn.Module, sites: list[Site]) -> bool:
    """Whether the sites have each column of the map's output once."""
    rows = weight_shape(module)[0]
    had: list[int] = []
    for site in sites:
        columns = as_columns(site.h.columns, module)
        had += range(rows) if columns is None else range(rows)[columns] if isinstance(columns, slice) else columns
    return sorted(had) == list(range(rows))
