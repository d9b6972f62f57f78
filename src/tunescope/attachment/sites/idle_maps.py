"""Linear maps where a delta would change nothing, so that none is put there without a word.

They are those whose weight the model takes without calling them, as Mamba's dt_proj; those that do not count for what
leaves their layer, as what chooses keys, or for the last states, as a pooler; and those that give more than a tensor,
as Llama 4's router.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.reach import resting, run_tiny, switched
from tunescope.attachment.attention.trial_inputs import tried
from tunescope.attachment.sites.gradients import is_linked
from tunescope.attachment.sites.trace import Seen
from tunescope.models.sites import is_map

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def idle_in(seen: Seen) -> set[str]:
    """Paths, of the maps that a layer called; none where nothing is known of what leaves it."""
    if not seen.outs:
        return set()
    counts = {call.path: False for call in seen.maps}
    for out in seen.outs:
        for call, leads in zip(seen.maps, is_linked(out, [call.h for call in seen.maps]), strict=True):
            counts[call.path] |= leads
    return {path for path, does in counts.items() if not does}


def idle_beside(model: PreTrainedModel, called: Collection[str]) -> set[str]:
    """Paths, of the maps that no layer called.

    One of several like modules in a list within a layer, an expert that no token of a short text was sent to, is none.
    """
    named = model.base_model.named_modules()
    rest = {path: one for path, one in named if is_map(one) and path not in called and one.weight.is_floating_point()}
    acted: set[nn.Module] = set()
    before = {path: module.weight.requires_grad for path, module in rest.items()}

    def after(module: nn.Module, _args: object, output: object) -> None:
        if isinstance(output, Tensor):
            acted.add(module)

    handles = [module.register_forward_hook(after) for module in rest.values()]
    try:
        for module in rest.values():
            module.weight.requires_grad_(True)
        what = "run on a short input to look for its sites"
        with tried(model, what), switched(model), resting(model), torch.compiler.set_stance("force_eager"):
            out = run_tiny(model) if rest else torch.zeros(1)
        weights = [module.weight for module in rest.values()]  # asked while they are free: the caller's may be frozen
        found = torch.autograd.grad(out.sum(), weights, allow_unused=True) if out.requires_grad else None
    finally:
        for path, module in rest.items():
            module.weight.requires_grad_(before[path])
        for handle in handles:
            handle.remove()
    if found is None:
        return {path for path in rest if not _listed(path)}
    counts = {path: gradient is not None for path, gradient in zip(rest, found, strict=True)}
    return {path for path, one in rest.items() if counts[path] != (one in acted) or not (counts[path] or _listed(path))}


def _listed(path: str) -> bool:
    """Whether it is in a list within a list."""
    return sum(part.isdigit() for part in path.split(".")) > 1
