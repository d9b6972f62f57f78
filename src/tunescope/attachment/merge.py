"""Deltas made part of the weights, for good."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tunescope.attachment.guards.marks import attached_to
from tunescope.attachment.guards.processes import check_in_one_piece
from tunescope.attachment.initial_artifacts import check_fits, site_uses
from tunescope.attachment.listed import listed
from tunescope.attachment.own_head import check_head
from tunescope.attachment.site_hooks import SiteUse
from tunescope.attachment.sites.choice import sites_for
from tunescope.attachment.weights import added, named_parameters
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, PatchDelta, SiteDelta, Spec
from tunescope.models.fingerprint import fingerprint
from tunescope.models.quantised import is_quantised
from tunescope.models.sites import is_transposed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def merge(model: PreTrainedModel, *artifacts: Artifact) -> Any:
    """The model with the deltas added to its weights, for good: the same outputs, no extra work. Returns the model.

    model: it is changed in place. artifacts: deltas of weights and biases, all added. They belong to the weights as
    they were: the model that holds them now refuses them, for they would act twice.

    Raises UserError, before anything is changed, for what is no change of weights: contexts, adapters, and a change of
    a whole block, whose input and output no one weight connects.
    """
    if artifacts:
        listed(artifacts, "merge() takes artifacts, as in merge(model, *tunescope.load(FOLDER))")
    uses = _uses(model, artifacts)
    if not any(parameter.is_meta for parameter in model.parameters()):
        for artifact in artifacts:
            artifact.base = artifact.base or fingerprint(model)
    _write(model, artifacts, uses)
    return model


def merged_copy(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> Any:
    """As `merge`, in a copy: the model and the artifacts stay as they are."""
    made = copy.deepcopy(model)
    _write(made, artifacts, _uses(made, artifacts))
    return made


def _uses(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> list[SiteUse[SiteDelta]]:
    """Every delta at every one of its sites; UserError for what cannot be merged into this model."""
    if attached_to(model) is not None:
        raise UserError("This model has artifacts attached: detach() first, or they act on top of what is merged.")
    check_in_one_piece(model, "merge() changes them")
    for artifact in artifacts:
        if not can_merge(artifact.spec):
            raise UserError(f"{artifact.spec} is no change of weights, so it cannot be merged: keep it attached.")
        check_fits(model, artifact)
    check_head(model, artifacts)
    uses = site_uses(model, artifacts)
    _check(model, uses)
    return uses


def _write(model: PreTrainedModel, artifacts: Sequence[Artifact], uses: Sequence[SiteUse[SiteDelta]]) -> None:
    places = named_parameters(model)
    with torch.no_grad():
        for artifact in artifacts:  # first, for attached they stand in the map whose rows a delta may scale
            if isinstance(artifact.spec, PatchDelta):
                for name, change in artifact.spec.patch(artifact.tensors).items():
                    module, attribute = places[name][0]
                    parameter = module._parameters[attribute]
                    assert parameter is not None
                    parameter.copy_(added(artifact.spec, parameter, change))
        for use in uses:
            _add(use)


def _check(model: PreTrainedModel, uses: Sequence[SiteUse[SiteDelta]]) -> None:
    """UserError for a site whose weight cannot take its change."""
    for use in uses:
        if not use.site.is_linear:
            raise UserError(
                f"{use.spec} acts on the whole block {use.site.name!r}, and no one weight takes what enters it to what "
                "leaves it, so it cannot be merged: keep it attached, or tune the maps inside: sites=attn.q,attn.v."
            )
        if "weight" not in use.site.h.module._parameters:
            raise UserError(
                f"{use.spec} cannot be merged into {use.site.name!r}, whose weight is computed from others, as torch's "
                "parametrize, prune and weight_norm have it: make it a weight of its own first, or keep it attached."
            )
    holders = Counter(id(value) for module in model.modules() for value in module._parameters.values())
    for use in uses:
        if holders[id(use.site.h.module.get_parameter("weight"))] > 1:
            raise UserError(
                f"{use.spec} cannot be merged into {use.site.name!r}, whose weight other modules of the model share, "
                "which would change with it: keep it attached."
            )
        if is_quantised(use.site.h.module.get_parameter("weight")):
            raise UserError(
                f"{use.spec} cannot be merged into {use.site.name!r}, whose weight is quantised: keep it attached, or "
                "merge it into the model as it was before."
            )


def _add(use: SiteUse[SiteDelta]) -> None:
    """Adds a delta to the weight of its map, and to its bias where rows are scaled and shifted first."""
    change, module = use.spec.weight_change(use.tensors), use.site.h.module
    assert change is not None
    weight = module.get_parameter("weight")
    target = weight.T if is_transposed(module) else weight
    rows = slice(None) if use.site.h.columns is None else use.site.h.columns
    own, by_row = target[rows], use.spec.row_change(use.tensors)
    if by_row is not None:
        gain, shift = (value.to(weight.device) for value in by_row)
        own = own * gain[:, None]
        if (bias := module._parameters.get("bias")) is not None:
            bias[rows] = (bias[rows] * gain + shift).to(bias.dtype)
    target[rows] = (own + change.to(weight.device)).to(weight.dtype)


def can_merge(spec: Spec) -> bool:
    """Whether the method is a change of weights."""
    if isinstance(spec, PatchDelta):
        return True
    return isinstance(spec, SiteDelta) and type(spec).weight_change is not SiteDelta.weight_change


def can_merge_into(model: PreTrainedModel, spec: Spec) -> bool:
    """Whether it is one of weights that this model has: of maps, not whole blocks."""
    if not isinstance(spec, SiteDelta) or not can_merge(spec):
        return can_merge(spec)
    return all(site.is_linear for site in sites_for(model, spec))
