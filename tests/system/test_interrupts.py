"""An interrupt that comes while objects are collected is not lost."""

import os
import signal
import threading
import weakref

import pytest

from tunescope.system import machine
from tunescope.system.interrupts import interrupts_held


class Sends:
    """In a circle, so that it goes when garbage is collected; then its `__del__` sends a signal to this process."""

    def __init__(self, number, sent):
        self.number, self.sent, self.itself = number, sent, self

    def __del__(self):
        os.kill(os.getpid(), self.number)
        signal.getsignal(self.number)  # whatever has come is handled by now
        self.sent.append(self.number)


@pytest.fixture(autouse=True)
def _interrupts_are_raised():
    """Also where the tests are run in the background, and who began them has interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["alone", "beside a thread"])
def company(request):
    """A signal that only the main thread blocks goes to another one."""
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    if request.param != "alone":
        other.start()
    yield
    end.set()
    if other.is_alive():
        other.join()


@pytest.mark.usefixtures("company")
def test_ctrl_c_within_a_del_is_raised_after_the_collection():
    sent = []
    gone = weakref.ref(Sends(signal.SIGINT, sent))
    with pytest.raises(KeyboardInterrupt):
        machine._return_freed_memory()
    assert sent == [signal.SIGINT] and gone() is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_kill_waits_too_and_each_comes_once_to_its_own_handler():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with interrupts_held():
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGTERM)
            assert came == []
        assert came == [signal.SIGTERM]
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_is_ignored_and_what_is_done_in_another_thread_stay_as_they_are():
    seen = []

    def look():
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        look()
    finally:
        signal.signal(signal.SIGINT, before)
    other = threading.Thread(target=look)
    other.start()
    other.join()
    assert seen == [signal.SIG_IGN, before]


def test_an_error_within_goes_on_its_way_with_the_handlers_given_back():
    with pytest.raises(ValueError, match="within"), interrupts_held():
        raise ValueError("within")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_waits_within_may_have_what_came_handled_before_the_end():
    with interrupts_held() as met:
        met()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            met()
        met()
        with interrupts_held() as inner:
            os.kill(os.getpid(), signal.SIGINT)
            inner()  # what is around holds it on
        with pytest.raises(KeyboardInterrupt):
            met()
