"""One thread at a time in a stack, for what it puts in front of a text stands in the stack's own modules."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import nn

from tunescope.attachment.guards.compiled import uncompiled

LOOK = 0.5  # seconds of waiting after which it is looked whether anybody is still in the stack


class Single:
    """Whose call of a stack is on. A thread whose call an interrupt cut short, or that has ended, keeps nobody waiting.

    Compiled, calls wait for nobody. A call that waits, within itself, for one of another thread waits for ever.
    """

    def __init__(self, stack: nn.Module) -> None:
        self._stack = stack
        self._free = threading.Condition()
        self._whose: int | None = None
        self._calls = 0  # of the thread's, one within another

    def begin(self) -> None:
        """Waits until no other thread's call is on; from here on this thread's is."""
        mine = threading.get_ident()
        with self._free:
            if self._whose == mine:  # this call is within another, unless that was cut short
                self._calls = _calls_in(self._stack, mine)
                return
            while self._whose is not None:
                if not self._free.wait(LOOK) and not _calls_in(self._stack, self._whose):
                    break
            self._whose, self._calls = mine, 1

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Within it a call ends with the stack's, raised in or not."""
        handle = self._stack.register_forward_hook(uncompiled(self._end), always_call=True)
        try:
            yield
        finally:
            handle.remove()

    def _end(self, *_: object) -> None:
        with self._free:
            if self._whose != threading.get_ident():
                return
            self._calls -= 1
            if self._calls < 1:
                self._whose = None
                self._free.notify_all()


def _calls_in(stack: nn.Module, thread: int | None) -> int:
    """How many calls of the stack a thread is in, one within another."""
    frame: FrameType | None = sys._current_frames().get(thread or 0)
    count = 0
    while frame is not None:
        count += is_call_of(stack, frame)
        frame = frame.f_back
    return count


def is_call_of(module: nn.Module, frame: FrameType) -> bool:
    """Whether a frame of Python is a module's call, hooks and all."""
    return frame.f_code is _CALL and frame.f_locals.get("self") is module


_CALLED: Callable[..., Any] = nn.Module._call_impl
_CALL = _CALLED.__code__
