"""Ctrl-C that is not lost: Python drops the exception where it falls into a destructor or a callback of a weakref."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def heard() -> Iterator[Callable[[], None]]:
    """Gives a function that raises KeyboardInterrupt once Ctrl-C was pressed inside, also where that came to nothing.

    Outside the main thread, and where somebody else handles the signal, nothing is changed and the function does
    nothing.
    """
    pressed = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
