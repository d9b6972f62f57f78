"""Several processes with one model between them: what is attached is the same in all of them, and stays so.

The artifacts are whole in every process, whatever is done to the base. They begin as the first process has them, and
their gradients are averaged over the processes at the end of `backward`, as DDP and FSDP2 average those of parameters:
where `fully_shard` was called, before `attach` or after it, and inside of a DDP that was made before `attach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from tunescope.attachment.guards.compiled import uncompiled
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.models.split import check_known, is_initialized, is_sharded, is_split_over

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")

GROUP = "_tunescope_group"  # on a model that several processes have been given to share: the group of them
APART = "_tunescope_apart"  # on a model: gradients are this process's own for now


@contextmanager
def alike(
    model: PreTrainedModel, tensors: Callable[[], Mapping[str, Tensor]], *, in_weights: bool = False
) -> Iterator[None]:
    """Within it the tensors are the same in all processes that share the model.

    in_weights: some of what is attached stands in the model's own parameters.

    Raises UserError, at the next call of the model too, where that cannot be.
    """
    sharing = _Sharing(model, tensors, in_weights)
    sharing.look()

    def before(*_: object) -> None:
        if not torch.compiler.is_compiling():
            sharing.look()

    before = uncompiled(before) if is_initialized() else before  # one process compiles a whole graph as ever
    handles = [
        module.register_forward_pre_hook(before, prepend=True)
        for module in dict.fromkeys([model, model.base_model, *anatomy(model).entries.values()])
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        sharing.end()


def check_in_one_piece(model: nn.Module, why: str = "") -> None:
    """UserError for what works on the model's own parameters, where a process holds a part of them.

    why: what changes them; "" where something looks at them.
    """
    if is_split_over(model):
        what = (
            f"{why}: use lora or adapter, or train with DDP" if why else "what looks inside needs that: load it whole"
        )
        raise UserError(f"This {type(model).__name__} is sharded, no process has a parameter of it whole, and {what}.")


class _Sharing:
    def __init__(self, model: PreTrainedModel, tensors: Callable[[], Mapping[str, Tensor]], in_weights: bool) -> None:
        self.model, self.tensors, self.in_weights = model, tensors, in_weights
        self.groups: list[Any] = []
        self.handles: dict[int, tuple[Tensor, Any]] = {}
        self.quiet: list[Any] = []  # DDPs whose own averaging rests, for they know of no tensor of ours
        self.is_due = self.is_checked = False

    def look(self) -> None:
        """Find out whether the model is shared by now, and with whom."""
        if not is_initialized():
            return
        if not self.groups:
            self._begin()
        if self.groups:
            for value in self.tensors().values():
                if value.requires_grad and id(value) not in self.handles:
                    self.handles[id(value)] = (value, self._hooked(value))

    def end(self) -> None:
        for _, handle in self.handles.values():
            handle.remove()
        for ddp in self.quiet:
            ddp.require_backward_grad_sync = True

    def _begin(self) -> None:
        if not self.is_checked or is_split_over(self.model):
            check_known(self.model)
            self.is_checked = True
        if self.in_weights:
            check_in_one_piece(self.model, "bias and full change them")
        self.groups = groups_of(self.model) or self._of_ddp()
        for group in self.groups:
            for _, value in sorted(self.tensors().items()):
                torch.distributed.broadcast(value.detach(), group=group, group_src=0)

    def _of_ddp(self) -> list[Any]:
        """The group of a DDP that calls the model now and that was made before these tensors stood in it."""
        ddp: Any = torch.nn.parallel.DistributedDataParallel._active_ddp_module
        if ddp is None or {id(value) for value in self.tensors().values()} <= {id(one) for one in ddp.parameters()}:
            return []
        ddp.require_backward_grad_sync = False
        self.quiet.append(ddp)
        return [ddp.process_group]

    def _hooked(self, value: Tensor) -> Any:
        return value.register_post_accumulate_grad_hook(self._due)  # type: ignore[no-untyped-call]

    def _due(self, _: Tensor) -> None:
        if not self.is_due and not getattr(self.model, APART, False):
            self.is_due = True
            Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        self.is_due = False
        average_all(self.tensors(), self.groups)


def average_all(tensors: Mapping[str, Tensor], groups: list[Any]) -> None:
    """`average` of those that train, whatever their types; the names are the same in all processes."""
    tuned = [value for _, value in sorted(tensors.items()) if value.requires_grad]
    for dtype in dict.fromkeys(value.dtype for value in tuned):
        average([value for value in tuned if value.dtype == dtype], groups)


@torch.no_grad()
def average(tensors: list[Tensor], groups: list[Any]) -> None:
    """Each one's gradient is the mean over all processes, of which those without one count as zero.

    One that has none anywhere keeps none.
    """
    has = torch.tensor([float(value.grad is not None) for value in tensors])
    parts = [(torch.zeros_like(value) if value.grad is None else value.grad).flatten() for value in tensors]
    flat = torch.cat([*parts, has.to(parts[0])])
    for group in groups:
        torch.distributed.all_reduce(flat, group=group)
        flat /= torch.distributed.get_world_size(group)
    *means, has = torch.split(flat, [*(value.numel() for value in tensors), len(tensors)])
    for value, mean, any_has in zip(tensors, means, has.tolist(), strict=True):
        if any_has:
            value.grad = mean.view_as(value).clone()


def written_once(model: nn.Module, path: str, write: Callable[[], None]) -> None:
    """`write` is called; of the processes that share the model and were given one path, by the first alone.

    Raises what it raises, and UserError in the others where it fails in the first.
    """
    groups = groups_of(model)
    first = told_by_first(groups, path)
    leads = all(torch.distributed.get_rank(group) == 0 for group in groups)
    try:
        if leads or path != first:
            write()
    except BaseException as problem:
        if leads:
            told_by_first(groups, str(problem))
        raise
    if (fault := told_by_first(groups, None)) is not None:
        raise UserError(fault)


def told_by_first(groups: list[Any], what: T) -> T:
    """What the first of the processes has here, whatever the others have."""
    told = [what]
    for group in groups:
        torch.distributed.broadcast_object_list(told, group=group, group_src=0)
    return told[0]


def groups_of(model: nn.Module) -> list[Any]:
    """The groups that each share the model, one after the other all processes that do; none where it is one's own."""
    if (group := getattr(model, GROUP, None)) is not None:
        return [group]
    for module in model.modules():
        if is_sharded(module):
            state: Any = module._get_fsdp_state()  # type: ignore[operator]
            for held in state._fsdp_param_groups:  # of a module whose parameters are all its children's there is none
                mesh = held.mesh_info.mesh
                return [mesh.get_group(axis) for axis in range(mesh.ndim)]
    return []
