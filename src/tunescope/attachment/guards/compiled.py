"""torch.compile and what is attached: hooks that come and go, and work that stays outside of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import CodeType, MethodType
from typing import Any, TypeVar, cast

import torch
from torch import nn

_IN_USE: dict[int, CodeType] = {}  # by id, for copies of code are equal
_COLLECTED: list[int] = []
Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """The function, run as it stands where torch compiles what is around it."""
    return cast(Function, torch.compiler.disable(function))  # type: ignore[no-untyped-call]


def forward_within(module: nn.Module, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
    """What `around` makes of the module's `forward`: a method, where that is one, for accelerate binds it to another.

    A copy of the module that still has it then runs itself, and not the module that it was copied from.
    """
    inner = module.forward
    if isinstance(inner, MethodType) and inner.__self__ is module:
        return MethodType(around(inner.__func__), module)
    return around(inner)


@contextmanager
def compiled_anew(model: nn.Module) -> Iterator[None]:
    """Within it torch compiles the model anew; afterwards what was compiled before serves again, and that is gone.

    Compiled code does not look for new hooks, but it does look whether a module has a `forward` of its own, and which
    code that is: within, every module has one that only passes on, in code of this call's own. What is compiled of
    anything else is left alone. Enter it last: it passes on to the `forward` that stands there.
    """
    _let_go(_COLLECTED)
    code = _passing_on(len).__code__.replace()  # a copy; torch drops what was compiled for it when it is freed
    _IN_USE[id(code)] = code
    before: list[tuple[nn.Module, Any, Any]] = []
    try:
        for module in _callable_modules(model):
            own = forward_within(module, partial(_passing_on, code=code))
            before.append((module, own, module.__dict__.get("forward")))
            module.__dict__["forward"] = own
        yield
    except GeneratorExit:  # collected, never detached: maybe amid compiled code, where torch would free what runs
        _COLLECTED.append(id(code))
        raise
    finally:
        for module, own, was in before:
            _put_back(module, own, was)
        if id(code) not in _COLLECTED:
            _let_go([id(code)])


def _callable_modules(model: nn.Module) -> list[nn.Module]:
    """Those that can be called, without lists of modules, and without torchscript, which is compiled already."""
    return [
        module
        for module in model.modules()
        if not isinstance(module, torch.jit.ScriptModule)
        and ("forward" in module.__dict__ or type(module).forward is not nn.Module.forward)
    ]


def _passing_on(inner: Callable[..., Any], code: CodeType | None = None) -> Any:
    @wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    if code is not None:
        cast(Any, forward).__code__ = code
    return forward


def _put_back(module: nn.Module, own: object, was: object) -> None:
    if module.__dict__.get("forward") is not own:  # somebody has put another there since, which is theirs to take away
        return
    if was is None:
        del module.__dict__["forward"]
    else:
        module.__dict__["forward"] = was


def _let_go(ids: list[int]) -> None:
    while ids:
        _IN_USE.pop(ids.pop())
