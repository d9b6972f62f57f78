"""A model that several processes share: each has it whole and a part of the rows, or a part of the model too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.reach import reached
from tunescope.attachment.guards.processes import APART, GROUP, average_all, groups_of, told_by_first
from tunescope.attachment.sites.site_map import sites_of
from tunescope.errors import UserError
from tunescope.models.fingerprint import carried
from tunescope.models.split import is_split_over

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
P = TypeVar("P")


def share(model: PreTrainedModel, how: str, device: torch.device) -> None:
    """The model is shared by all processes that there are, for good. Every one of them calls this.

    how: "ddp" is one copy each; "fsdp" shards each layer, and the rest together (torch's FSDP2). What is found out by a
    pass of the whole model is found out before.
    """
    setattr(model, GROUP, torch.distributed.group.WORLD)
    if how == "ddp":
        model.to(device)
        return
    with suppress(UserError):  # who asks for what is not there is told then
        sites_of(model)
        reached(model)
    with carried(model):
        _sharded(model, device)


def _sharded(model: PreTrainedModel, device: torch.device) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def layers(model: nn.Module) -> list[nn.Module]:
    """The modules of the outermost lists: those of a transformer's stacks."""
    found: list[nn.Module] = []
    within: set[int] = set()
    for module in model.modules():  # from the outermost inwards
        if isinstance(module, nn.ModuleList) and id(module) not in within:
            within |= {id(part) for part in module.modules()}
            found += [one for one in module if next(one.parameters(), None) is not None]
    return found


def is_shared(model: nn.Module) -> bool:
    return bool(groups_of(model))


def place_in(model: nn.Module) -> tuple[int, int] | None:
    """This process's number among those that share the model, and how many these are; None for one alone."""
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if is_shared(model) else None


def as_first(model: nn.Module, what: T) -> T:
    """What the first of the processes that share the model has; in one process, what is given."""
    return told_by_first(groups_of(model), what)


@contextmanager
def apart(model: nn.Module) -> Iterator[None]:
    """Within it a backward pass of a model that each process has whole waits for no other: gradients are its own."""
    setattr(model, APART, True)
    try:
        yield
    finally:
        delattr(model, APART)


def averaged(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """The gradients of what is trained are the mean over all processes, as each backward pass makes them elsewhere."""
    average_all(tensors, groups_of(model))


def dealt(model: nn.Module, parts: Sequence[P], work: Callable[[P], T]) -> list[T]:
    """What `work` makes of each part, in order: of the processes that `share` the model each does every so-manyth.

    Parts are not cut, so each result is what one process makes of it, to the last digit where the model is whole. Where
    it is in parts, all processes call it equally often: who has nothing left does the last part again, for nobody.
    Every process calls this, with the same parts.

    Raises what `work` raises; in all processes, what one of them refuses of a whole model.
    """
    if getattr(model, GROUP, None) is None:
        return [work(part) for part in parts]
    rank, processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
    own, refused = parts[rank::processes], None
    if is_split_over(model):
        again = parts[-1:] if len(own) < -(-len(parts) // processes) else ()
        found = [work(part) for part in (*own, *again)][: len(own)]
    else:
        found, refused = _done(own, work)
    told: list[tuple[list[T], UserError | None]] = [([], None)] * processes
    torch.distributed.all_gather_object(told, ([_moved(one, "cpu") for one in found], refused))
    for _, problem in told:
        if problem is not None:
            raise problem
    every = [told[index % processes][0][index // processes] for index in range(len(parts))]
    return [_moved(one, next(model.parameters()).device) for one in every]


def _done(parts: Sequence[P], work: Callable[[P], T]) -> tuple[list[T], UserError | None]:
    """What is made of the parts, or why they are refused, which then all processes are told."""
    try:
        return [work(part) for part in parts], None
    except UserError as problem:
        return [], problem


def _moved(value: T, device: torch.device | str) -> T:
    return cast(T, value.to(device)) if isinstance(value, Tensor) else value


def total(value: float) -> float:
    """The sum over all processes, where their group sends tensors: begun with "nccl" alone, on GPUs."""
    backends = torch.distributed.get_backend_config()  # as in "cpu:gloo,cuda:nccl"
    device = "cpu" if "cpu:" in backends else backends.partition(":")[0]
    summed = torch.tensor(value, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(summed)
    return float(summed)
