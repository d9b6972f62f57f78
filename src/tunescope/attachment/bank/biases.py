"""BitFit by row: a change of a bias is added to what leaves the module that has the bias."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.reach import resting
from tunescope.attachment.attention.trial_inputs import trial_inputs
from tunescope.attachment.site_hooks import SiteUse
from tunescope.attachment.weights import named_parameters
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, Params, PatchDelta, SiteDelta, SiteShape
from tunescope.models.sites import Site, Tap, is_transposed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_CALLED: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet[nn.Module]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Added(SiteDelta):
    """h + change."""

    sites: tuple[str, ...] = ()

    def init(self, shape: SiteShape) -> Params:
        return {"change": torch.zeros(shape.d_out)}

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        return h + p["change"]


def bias_uses(model: PreTrainedModel, name: str, artifacts: Sequence[Artifact]) -> list[SiteUse[SiteDelta]]:
    """What changes of biases do at the modules that have them. Raises UserError for any other parameter."""
    changes = [artifact for artifact in artifacts if isinstance(artifact.spec, PatchDelta)]
    if not changes:
        return []
    places = named_parameters(model)
    uses: list[SiteUse[SiteDelta]] = []
    for artifact in changes:
        assert isinstance(artifact.spec, PatchDelta)
        for parameter, change in artifact.spec.patch(artifact.tensors).items():
            adding = [
                module for module, attribute in places[parameter] if attribute == "bias" and _adds_its_bias(module)
            ]
            shared = len(places[parameter]) > 1  # a masked model's head holds the bias of its map too, and adds none
            if len(adding) != 1 or (shared and adding[0] not in called_maps(model)):
                raise UserError(
                    f"Bank: {name!r} changes {parameter!r}, which is no bias that a row can have to itself: merge it."
                )
            site = Site(parameter, Tap.on(adding[0], "in"), Tap.on(adding[0], "out"), None, 1)
            uses.append(SiteUse(Added(), site, {"change": change}))
    return uses


def called_maps(model: PreTrainedModel) -> set[nn.Module]:
    """Of the maps whose bias stands elsewhere too those that are called: MobileBERT takes its head's weights alone.

    Found once for a model, by a pass over a short text; a bank asks for them before anything is attached.
    """
    if model not in _CALLED:
        tied = [places for places in named_parameters(model).values() if len(places) > 1]
        maps = {module for places in tied for module, name in places if name == "bias" and _adds_its_bias(module)}
        _CALLED[model] = found = weakref.WeakSet[nn.Module]()
        handles = [module.register_forward_hook(lambda module, *_: found.add(module)) for module in maps]
        try:
            if maps:
                with resting(model), torch.no_grad():
                    model(**trial_inputs(model))
        finally:
            for handle in handles:
                handle.remove()
    return set(_CALLED[model])


def _adds_its_bias(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.LayerNorm) or is_transposed(module)
