"""Several processes with one model between them: what is attached is the same in all of them, and stays so.

The artifacts are whole in every process, whatever is done to the base, and small. Their gradients are averaged over the
processes, as DDP and FSDP2 average those of parameters, whether the model was sharded before or after `attach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tunescope.attachment.guards.compiled import uncompiled
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.models.split import check_known, is_split_over

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def alike(model: PreTrainedModel, tensors: Callable[[], Mapping[str, Tensor]]) -> Iterator[None]:
    """Refused: a model that is sharded, before or after."""
    check(model)
    handles = [
        module.register_forward_pre_hook(uncompiled(lambda *_: check(model)), prepend=True)
        for module in dict.fromkeys([model, model.base_model, *anatomy(model).entries.values()])
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def check(model: PreTrainedModel) -> None:
    check_known(model)
    if is_split_over(model):
        raise UserError(
            f"This {type(model).__name__} is sharded by FSDP2, and every process would train artifacts of its own: "
            "attach to a whole model, and train with DDP."
        )


__all__: list[Any] = ["alike", "check"]
