"""One thread at a time in a stack, for what it puts in front of a text stands in the stack's own modules."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from tunescope.attachment.guards.compiled import uncompiled

LOOK = 0.5  # seconds of waiting after which it is looked whether anybody is still in the stack


class Single:
    """Whose call of a stack is on. A thread whose call an interrupt cut short, or that has ended, keeps nobody waiting.

    Compiled, calls wait for nobody.
    """

    def __init__(self, stack: nn.Module) -> None:
        self._stack = stack
        self._free = threading.Condition()
        self._whose: int | None = None

    def begin(self) -> None:
        """Waits until no other thread's call is on; from here on this thread's is."""
        with self._free:
            while self._whose not in (None, threading.get_ident()):
                if not self._free.wait(LOOK) and not _is_in(self._stack, self._whose):
                    break
            self._whose = threading.get_ident()

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
            if self._whose == threading.get_ident():
                self._whose = None
                self._free.notify_all()


def _is_in(stack: nn.Module, thread: int | None) -> bool:
    """Whether a thread is in a call of the stack."""
    frame: Any = sys._current_frames().get(thread or 0)
    while frame is not None:
        if frame.f_code is _CALL and frame.f_locals.get("self") is stack:
            return True
        frame = frame.f_back
    return False


_CALLED: Callable[..., Any] = nn.Module._call_impl
_CALL = _CALLED.__code__
