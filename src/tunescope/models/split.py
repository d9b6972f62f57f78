"""Models whose parameters are split over processes: how, and which ways of that are refused.

Nothing of torch.distributed is imported: who split a model has done so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

import torch.distributed
from torch import Tensor, nn

from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FSDP2 = "Shard it with torch.distributed.fsdp.fully_shard."


def is_initialized() -> bool:
    """Whether this process is one of a group."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def is_split(value: Tensor) -> bool:
    """Whether a process holds a part of it alone (torch's DTensor)."""
    return hasattr(value, "placements")


def is_sharded(module: nn.Module) -> bool:
    """Whether FSDP2's `fully_shard` was called with the module itself."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def reshard(model: nn.Module) -> None:
    """Put away what FSDP2 holds gathered between two passes, which is a copy in the type that it computes in.

    Behind a pass without gradients the root's parameters are that, and no longer the parts that a process keeps.
    """
    found = [cast(Any, module) for module in model.modules() if is_sharded(module)]
    if all(module._get_fsdp_state()._training_state.name == "IDLE" for module in found):
        for module in found:
            module.reshard()


def is_split_over(model: nn.Module) -> bool:
    """Whether any parameter is, or will be once it is not in use."""
    return is_initialized() and (any(map(is_sharded, model.modules())) or any(map(is_split, model.parameters())))


def plain_type(module: nn.Module) -> type[nn.Module]:
    """The class that it was written as: `fully_shard` makes it one of a class of its own."""
    return type(module).__mro__[2] if is_sharded(module) else type(module)


def check_known(model: PreTrainedModel) -> None:
    """UserError, with what to type, for a model that is split in a way that would be trained or read wrongly."""
    name = type(model).__name__
    if _is_flat(model):
        raise UserError(f"This {name} is sharded by the first version of FSDP, which keeps no parameter of it. {FSDP2}")
    if any(hasattr(value, "ds_id") for value in model.parameters()):
        raise UserError(f"This {name} is sharded by DeepSpeed ZeRO-3, whose parameters are elsewhere. {FSDP2}")
    if _is_pipelined(model) or _is_tensor_parallel(model):
        raise UserError(
            f"This {name} is split by a tensor-parallel, expert-parallel or pipeline plan, under which what passes a "
            f"site is a part of it, and a delta or a context there would be wrong: load it without a plan. {FSDP2}"
        )


def _is_flat(model: nn.Module) -> bool:
    """Whether FSDP's first version is around it, which marks the modules that it has within, for torch.compile."""
    marked = any(hasattr(module, "_fsdp_use_orig_params") for module in model.modules())
    return marked and not any(map(is_sharded, model.modules()))


def _is_pipelined(model: PreTrainedModel) -> bool:
    """Whether transformers has split it by a plan of anything but FSDP."""
    asked = getattr(model.config, "distributed_config", None)
    return any((getattr(asked, f"{axis}_size", None) or 1) > 1 for axis in ("tp", "ep", "pp"))


def _is_tensor_parallel(model: nn.Module) -> bool:
    """Whether a parameter is split otherwise than FSDP2 splits its own, which is along one axis of the processes."""
    managed = {id(part) for module in model.modules() if is_sharded(module) for part in module.parameters()}
    for value in model.parameters():
        if is_split(value):
            axes = sum(not one.is_replicate() for one in value.placements)  # type: ignore[attr-defined]
            if axes > (1 if id(value) in managed else 0):
                return True
    return False
