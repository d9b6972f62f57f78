"""Ctrl-C and a kill that wait, for an exception raised within a `__del__` is printed by Python and lost; and processes
that Ctrl-C does not reach, for each would print where it was.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HELD = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_held() -> Iterator[Callable[[], None]]:
    """Within it SIGINT and SIGTERM do nothing yet; at its end each that came is handled once, as it would have been.

    What it yields handles at once what has come, for those who wait within.

    Handlers are put off, and no signals blocked: a signal that the main thread blocks goes to another thread, and its
    handler runs in the main one all the same. In other threads nothing is held, for nothing is raised there; nor is a
    signal that no handler in Python waits for.
    """
    came: dict[int, FrameType | None] = {}

    def hold(number: int, frame: FrameType | None) -> None:
        came[number] = frame

    def met() -> None:
        for number in list(came):
            before[number](number, came.pop(number))

    is_main = threading.current_thread() is threading.main_thread()
    handlers = {int(number): signal.getsignal(number) for number in HELD if is_main}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in before:
            signal.signal(number, hold)
        yield met
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        met()


@contextmanager
def children_spared() -> Iterator[None]:
    """Processes that are begun within never hear Ctrl-C, which is the parent's to hear; a kill ends them as any other.

    It is blocked there from their first instruction, for Python takes a while to come to a line that could ignore it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it unblocks Ctrl-C here when it has begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
