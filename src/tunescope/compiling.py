"""torch.compile and what is attached: hooks that come and go, and work that stays outside of graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def uncompiled(function: Any) -> Any:
    """The function, run as it stands where torch compiles what is around it."""
    return torch.compiler.disable(function)  # type: ignore[no-untyped-call]


@contextmanager
def compiled_anew() -> Iterator[None]:
    """What torch has compiled is compiled anew within and afterwards: compiled code does not look for new hooks.

    Not where a model is collected that was never detached, which may happen amid compiled code: torch would free what
    is running, and crash.
    """
    torch._dynamo.reset()
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        torch._dynamo.reset()
        raise
    torch._dynamo.reset()
