"""BitFit by row: a change of a bias is added to what leaves the module that has the bias."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.reach import resting
from tunescope.attachment.attention.trial_inputs import trial_inputs, tried
from tunescope.attachment.guards.mamba_kernels import unfused
from tunescope.attachment.site_hooks import SiteUse
from tunescope.attachment.weights import named_parameters
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, Params, PatchDelta, SiteDelta, SiteShape
from tunescope.models.sites import Site, Tap, is_transposed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_Sets = tuple["weakref.WeakSet[nn.Module]", "weakref.WeakSet[nn.Module]"]
_UNCALLED: weakref.WeakKeyDictionary[nn.Module, _Sets] = weakref.WeakKeyDictionary()


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
            adding = [  # a masked model's head holds the bias of its map too, and adds none
                module for module, attribute in places[parameter] if attribute == "bias" and _adds_its_bias(module)
            ]
            if len(adding) == 1 and adding[0] in beside_text(model):
                raise UserError(
                    f"Bank: {name!r} changes {parameter!r}, which text does not go through: it acts before a row's "
                    "own artifacts do. Attach it alone, or merge it."
                )
            if len(adding) != 1 or adding[0] in uncalled_maps(model):
                raise UserError(
                    f"Bank: {name!r} changes {parameter!r}, which is no bias that a row can have to itself: merge it."
                )
            site = Site(parameter, Tap.on(adding[0], "in"), Tap.on(adding[0], "out"), None, 1)
            uses.append(SiteUse(Added(), site, {"change": change}))
    return uses


def uncalled_maps(model: PreTrainedModel) -> set[nn.Module]:
    """Maps whose bias something else takes, as Jamba takes that of its steps and MobileBERT its head's.

    They are not called, though the module that holds them is, or though their bias stands elsewhere too. Found once for
    a model, by a pass over a short text; a bank asks for them before anything is attached. Raises UserError where the
    family's own code fails.
    """
    return set(_uncalled(model)[0])


def beside_text(model: PreTrainedModel) -> set[nn.Module]:
    """Modules with a bias that a pass over text alone comes by with all that is around them: a tower for pictures."""
    return set(_uncalled(model)[1])


def _uncalled(model: PreTrainedModel) -> _Sets:
    if model not in _UNCALLED:
        tied = {
            module: len(places) > 1
            for places in named_parameters(model).values()
            for module, attribute in places
            if attribute == "bias" and _adds_its_bias(module)
        }
        holders = {module: holder for holder in model.modules() for module in holder.children() if module in tied}
        called = set[nn.Module]()
        watched = {*tied, *holders.values()}
        handles = [module.register_forward_hook(lambda module, *_: called.add(module)) for module in watched]
        try:
            if tied:
                with tried(model, "run to see which maps it calls"), unfused(model), resting(model), torch.no_grad():
                    model(**trial_inputs(model))
        finally:
            for handle in handles:
                handle.remove()
        left = [one for one in tied if one not in called]
        maps = [one for one in left if tied[one] or holders[one] in called]
        _UNCALLED[model] = weakref.WeakSet(maps), weakref.WeakSet(one for one in left if one not in maps)
    return _UNCALLED[model]


def _adds_its_bias(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.LayerNorm) or is_transposed(module)
