"""Positions that a family makes on the way to its decoder, which count padding where the caller of the model gave none.

PaliGemma does, and Fuyu: the decoder is handed them as if they were the caller's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tunescope.attachment.guards.compiled import uncompiled
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import recounted

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class FamilyPositions:
    """What the outermost call around a decoder, of those that are on in a thread, says of padding."""

    def __init__(self, model: PreTrainedModel, entry: nn.Module) -> None:
        is_within = anatomy(model).kind == "decoder" and entry is not model.base_model
        modules = model.modules() if is_within else ()
        self._around = [one for one in modules if one is not entry and entry in set(one.modules())]
        self._calls = threading.local()

    def counted(self, given: dict[str, Any]) -> dict[str, Any]:
        """The decoder's call, its positions counted by the caller's mask where they are not the caller's."""
        masks: dict[int, Tensor | None] = getattr(self._calls, "masks", {})
        mask = masks[min(masks)] if masks else None
        return given if mask is None else recounted(given, mask)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within it the calls around the decoder are looked at."""
        with ExitStack() as stack:
            for depth, module in enumerate(self._around):
                begin, end = partial(self._begin, depth, argument_names(module)), partial(self._end, depth)
                stack.callback(module.register_forward_pre_hook(uncompiled(begin), with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(uncompiled(end), always_call=True).remove)
            yield

    def _begin(
        self, depth: int, names: list[str], _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._end(depth)  # of a call that an interrupt cut short
        given = dict(zip(names, args, strict=False)) | kwargs
        mask = given.get("attention_mask") if given.get("position_ids") is None else None
        self._calls.masks[depth] = mask if isinstance(mask, Tensor) else None

    def _end(self, depth: int, *_: object) -> None:
        self._calls.masks = {at: mask for at, mask in getattr(self._calls, "masks", {}).items() if at < depth}
