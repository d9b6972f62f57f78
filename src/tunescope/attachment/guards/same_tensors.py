"""Tensors of what is attached are changed in place: others that were put in their place would not all act."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch

from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, SiteDelta, Spec
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class SameTensors:
    """Artifacts with the tensors that act for them.

    fixed: the kinds that were handed their tensors once; all others read theirs anew in every pass, from the dict that
    they were attached with.
    """

    def __init__(self, artifacts: Iterable[Artifact], fixed: type[Spec] | tuple[type[Spec], ...]) -> None:
        self._held = [(one, one.tensors, dict(one.tensors) if isinstance(one.spec, fixed) else {}) for one in artifacts]

    def check(self) -> None:
        """Raises UserError where an artifact holds other tensors than act."""
        if torch.compiler.is_compiling():
            return
        for artifact, tensors, own in self._held:
            if artifact.tensors is not tensors or any(tensors.get(name) is not value for name, value in own.items()):
                raise UserError(
                    f"Other tensors were put in the place of those of {artifact.spec} while it is attached, and would "
                    "not act. Copy into them, tensors[NAME].data.copy_(VALUE); or detach() first, and attach again."
                )


@contextmanager
def unexchanged(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> Iterator[Callable[[], None]]:
    """What it gives raises UserError where the artifacts hold other tensors than act; each pass asks it too."""
    held = SameTensors(artifacts, SiteDelta)
    with ExitStack() as stack:
        for entry in anatomy(model).entries.values():
            stack.callback(entry.register_forward_pre_hook(lambda *_: held.check()).remove)
        yield held.check
