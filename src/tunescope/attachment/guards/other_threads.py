"""Calls of a model in other threads, amid which nothing is attached or taken away: they would get a part of it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from torch import nn

from tunescope.attachment.guards.compiled import uncompiled
from tunescope.attachment.guards.single import is_call_of
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOOK = 0.002  # seconds between two looks


@contextmanager
def none_begins(model: PreTrainedModel) -> Iterator[None]:
    """Within it a call of the model by another thread is refused; one that is on goes on, a `generate` as a whole."""
    mine, modules = threading.get_ident(), _modules(model)

    def check(module: nn.Module, *_: object) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and not is_call_of(module, frame):
            frame = frame.f_back
        if threading.get_ident() != mine and frame is not None and not _within(frame.f_back, modules):
            raise UserError(
                "Another thread is attaching something to this model or detaching it, as this call began: call again. "
                "What changes while a model answers stands in a Bank, attached before: bank.add(NAME, ...)."
            )

    with ExitStack() as stack:
        if threading.active_count() > 1:
            for one in modules:
                stack.callback(one.register_forward_pre_hook(uncompiled(check), prepend=True).remove)
        yield


def check_quiet(model: PreTrainedModel) -> None:
    """UserError where another thread is in a call of the model, or in its `generate`."""
    if _is_called(model):
        raise UserError(
            "attach(): another thread is in a call of this model, which might get a part of what is attached: attach "
            "when none is. What changes while a model answers stands in a Bank, attached before: bank.add(NAME, ...)."
        )


def wait_until_quiet(model: PreTrainedModel, meanwhile: Callable[[], None]) -> None:
    """Until no other thread is in a call of the model, or in its `generate`; between two looks comes `meanwhile`."""
    while _is_called(model):
        meanwhile()
        time.sleep(LOOK)


def _is_called(model: PreTrainedModel) -> bool:
    if threading.active_count() == 1:
        return False
    mine, modules = threading.get_ident(), _modules(model)
    return any(_within(frame, modules) for thread, frame in sys._current_frames().items() if thread != mine)


def _modules(model: PreTrainedModel) -> list[nn.Module]:
    return list(dict.fromkeys([model, model.base_model, *anatomy(model).entries.values()]))


def _within(frame: FrameType | None, modules: list[nn.Module]) -> bool:
    while frame is not None:
        if any(is_call_of(one, frame) for one in modules):
            return True
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is modules[0]:
            return True
        frame = frame.f_back
    return False
