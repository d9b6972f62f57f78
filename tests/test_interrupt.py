"""Ctrl-C during a run is never lost."""

import os
import signal
import threading
from contextlib import suppress

import pytest

from tunescope.comparing.interrupt import heard


def press():
    os.kill(os.getpid(), signal.SIGINT)
    signal.sigpending()  # a moment for it to arrive


def press_and_lose():
    with suppress(KeyboardInterrupt):
        press()


def test_an_interrupt_that_somebody_swallowed_is_raised_at_the_next_look():
    with heard() as check:
        check()
        press_and_lose()
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_one_is_raised_at_once_as_python_does():
    with pytest.raises(KeyboardInterrupt), heard():
        press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_another_handles_is_left_to_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with heard() as check:
            os.kill(os.getpid(), signal.SIGINT)
            check()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_changes_nothing():
    def inside():
        with heard() as check:
            check()
            seen.append(signal.getsignal(signal.SIGINT))

    seen = []
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
