"""Modes of torch that are the caller's own: within a run, and where tensors are drawn, there are none of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def own_modes() -> Iterator[None]:
    """Within it torch computes as in a process that has set nothing; afterwards as the caller has set it.

    Gradients are on and no inference mode is; nothing is cast by itself; what names no type or device is float32 on the
    CPU. So the same question has the same numbers wherever it is asked. Flags of kernels (threads, determinism, TF32)
    are left as they are.
    """
    own = torch.accelerator.current_accelerator(check_available=True)
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        if torch.get_default_device().type != "cpu":  # else a mode that every call of torch would pass through
            stack.enter_context(torch.device("cpu"))
        for kind in {"cpu", own.type if own is not None else "cpu"}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.inference_mode(False))  # which has gradients on, within no_grad too
        yield
