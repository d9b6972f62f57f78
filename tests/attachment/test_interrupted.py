"""Ctrl-C amid attach, detach or a pause: the model is then attached or as it was, and nothing between."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

import tunescope as ts
from tunescope.attachment.guards.marks import attached_to

OURS = str(Path(ts.__file__).parent)
FAMILIES = {"full:": "gpt2", "lora:rank=2+prefix:length=2": "llama", "soft:length=2+bias": "opt"}


class Interrupt:
    """Ctrl-C at the so many-th line of ours; `came` says whether there was one."""

    def __init__(self, at: int):
        self.at, self.came = at, False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS) or self.came:
            return None
        if event == "line":
            self.at -= 1
            if self.at < 0:
                self.came = True
                signal.raise_signal(signal.SIGINT)
        return self


@contextmanager
def interrupted(at: int) -> Iterator[Interrupt]:
    before, found = sys.gettrace(), Interrupt(at)
    sys.settrace(found)
    raised = False
    try:
        yield found
    except KeyboardInterrupt:
        raised = True
    finally:
        sys.settrace(before)
    assert raised == found.came


def state(model: Any) -> dict[str, Any]:
    """Of every module its hooks and what it has of its own, and of every parameter whether it asks for gradients."""
    found: dict[str, Any] = {}
    for name, one in model.named_modules():
        hooks = (one._forward_hooks, one._forward_pre_hooks, one._state_dict_pre_hooks)
        found[name] = [[id(hook) for hook in some.values()] for some in hooks], sorted(vars(one))
    asks = {name: (id(value), value.requires_grad) for name, value in model.named_parameters()}
    return {**found, "asks": asks}


def said(model: Any, **how: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=tiny.ids(2, 5), **how).logits
    return found


def detached(model: Any, artifacts: list[Any], at: int) -> Interrupt:
    tuned = ts.attach(model, *artifacts)
    with interrupted(at) as found:
        tuned.detach()
    tuned.detach()  # once more, as who is in doubt does
    return found


def attached(model: Any, artifacts: list[Any], at: int) -> Interrupt:
    """The last of its lines are behind it: what is then attached is whole, and can be taken away."""
    with interrupted(at) as found:
        ts.attach(model, *artifacts)
    if held := attached_to(model):
        held.detach()
    return found


def paused(model: Any, artifacts: list[Any], at: int) -> Interrupt:
    with ts.attach(model, *artifacts) as tuned, interrupted(at) as found, tuned.paused():
        pass
    return found


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Where tests run in the background of a shell, an interrupt would be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def another() -> Iterator[None]:
    """A thread that does nothing, beside which more is guarded against."""
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    yield
    ends.set()
    thread.join()


@pytest.mark.usefixtures("another")
@pytest.mark.parametrize("way", [detached, attached, paused])
@pytest.mark.parametrize("text", FAMILIES)
def test_the_model_is_as_it_was(way: Callable[[Any, list[Any], int], Interrupt], text: str) -> None:
    model = tiny.make(FAMILIES[text])
    artifacts = tiny.away(model, text, 0)
    said(model)
    ts.attach(model, *artifacts).detach()
    before, answer = state(model), said(model)
    with ts.attach(model, *artifacts):
        other = said(model)
    at, came = 0, True
    while came:
        came = way(model, artifacts, at).came
        assert state(model) == before, at
        at += 7 if way is not attached else 31
    assert torch.equal(said(model), answer)
    with ts.attach(model, *artifacts):
        assert torch.equal(said(model), other)
    assert at > 200


@pytest.mark.parametrize("takes_turns", [False, True], ids=["attached", "bank"])
def test_one_that_waits_for_a_call_of_another_thread_is_interrupted(takes_turns: bool) -> None:
    model = tiny.make("gpt2")
    artifacts = tiny.away(model, "lora:rank=2", 0)
    begun, ends, answers = threading.Event(), threading.Event(), []

    def waits(*_: object) -> None:
        begun.set()
        ends.wait(20)

    tuned = ts.attach(model, ts.Bank({"a": artifacts})) if takes_turns else ts.attach(model, *artifacts)
    hook = model.transformer.h[0].register_forward_hook(waits)
    how = {"rows": ["a", "a"]} if takes_turns else {}
    thread = threading.Thread(target=lambda: answers.append(said(model, **how)))
    thread.start()
    assert begun.wait(20)
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        tuned.detach()
    assert attached_to(model) is tuned
    ends.set()
    thread.join()
    hook.remove()
    tuned.detach()
    assert len(answers) == 1
    assert attached_to(model) is None
