"""torch.compile and what is attached: hooks that come and go, and work that stays outside of graphs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def uncompiled(function: Any) -> Any:
    """The function, run as it stands where torch compiles what is around it."""
    return torch.compiler.disable(function)  # type: ignore[no-untyped-call]


@contextmanager
def compiled_anew() -> Iterator[None]:
    """What torch has compiled is compiled anew within and afterwards: compiled code does not look for new hooks."""
    torch._dynamo.reset()
    try:
        yield
    finally:
        if not sys.is_finalizing():  # a model that is still attached when Python ends
            torch._dynamo.reset()
