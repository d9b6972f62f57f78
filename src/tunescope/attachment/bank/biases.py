"""BitFit by row: a change of a bias is added to what leaves the module that has the bias."""

from __future__ import annotations

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
            if len(adding) != 1 or (shared and not _is_called(model, adding[0])):
                raise UserError(
                    f"Bank: {name!r} changes {parameter!r}, which is no bias that a row can have to itself: merge it."
                )
            site = Site(parameter, Tap.on(adding[0], "in"), Tap.on(adding[0], "out"), None, 1)
            uses.append(SiteUse(Added(), site, {"change": change}))
    return uses


def _is_called(model: PreTrainedModel, module: nn.Module) -> bool:
    """Whether the model calls the module, and does not take its weights alone, as MobileBERT's head does."""
    called: list[nn.Module] = []
    handle = module.register_forward_hook(lambda *_: called.append(module))
    try:
        with resting(model), torch.no_grad():
            model(**trial_inputs(model))
    finally:
        handle.remove()
    return bool(called)


def _adds_its_bias(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.LayerNorm) or is_transposed(module)
