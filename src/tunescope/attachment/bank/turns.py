"""Several threads and one model with a bank: their calls take turns, for what rows take stands in the model itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

from torch import nn

from tunescope.attachment.guards.compiled import forward_within, uncompiled
from tunescope.attachment.guards.marks import standing_in
from tunescope.errors import UserError


class Turns:
    """A thread that calls one of the modules waits until no other thread is in a call of any of them.

    `with turns.lock` is a turn of more than one call. A thread may begin a call within its own.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._stands = False
        self._on: list[nn.Module] = []  # the calls that are on, all of the thread whose turn it is
        self._ends: dict[nn.Module, Any] = {}

    @contextmanager
    def taken(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """Within it calls of these take turns, which begin before the hooks of the modules."""
        distinct, self._stands = list(dict.fromkeys(modules)), True
        begins = [one.register_forward_pre_hook(uncompiled(self._begin), prepend=True) for one in distinct]
        self._ends = {one: one.register_forward_hook(uncompiled(self._end), always_call=True) for one in distinct}
        try:
            with ExitStack() as stack:
                for one in distinct:
                    stack.enter_context(standing_in(one, {"forward": forward_within(one, partial(self._left, one))}))
                yield
        finally:
            self._stands = False
            for handle in (*begins, *self._ends.values()):
                handle.remove()

    def end_last(self) -> None:
        """From here on a turn ends behind the hooks that there are now."""
        for module, handle in self._ends.items():
            handle.remove()
            self._ends[module] = module.register_forward_hook(uncompiled(self._end), always_call=True)

    def is_of_another(self) -> bool:
        """Whether a call is on in another thread."""
        if is_free := self.lock.acquire(blocking=False):
            self.lock.release()
        return not is_free

    def _begin(self, module: nn.Module, *_: object) -> None:
        self.lock.acquire()
        if not self._stands:
            self.lock.release()
            raise UserError("The bank was detached while this call waited for its turn: call the model again.")
        self._on.append(module)

    def _end(self, module: nn.Module, *_: object) -> None:
        """The call is over, and with it those within it that were cut short."""
        if not self.lock.acquire(blocking=False):  # it never began, and another thread's is on
            return
        try:
            is_on = module in self._on
            while is_on:
                is_on = self._on.pop() is not module
                self.lock.release()
        finally:
            self.lock.release()

    def _left(self, module: nn.Module, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The `forward` of a module, which ends the turn where an interrupt cuts it short: torch calls no hook then."""

        @wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            try:
                return inner(*args, **kwargs)
            except Exception:
                raise
            except BaseException:
                self._end(module)
                raise

        return uncompiled(forward)
