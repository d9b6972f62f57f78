"""`tunescope arms`: every method with its fields, from the registry alone."""

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from tunescope.methods.artifact import Spec
from tunescope.methods.text_form import FOLDERS, methods
from tunescope.search.names import searches
from tunescope.system import plugins

UNTRAINED = (
    "zero-shot: the model as it is",
    "demos: solved examples in front of the text, drawn anew for each seed; k=4 of each label",
    "    fields: k=4, choose=balanced|random|diverse|nearest|similar, encoder, sets=1, order=mixed|entropy|best, "
    "orders=24|all, calibrate",
    "    example: demos:k=4,order=best,orders=12,calibrate=true",
    "    example: demos:k=1,choose=similar,sets=16+full",
    "cot: steps before the answer (--task reasoning), alone or behind demos, whose steps are then shown; before a "
    "method that is trained it learns the steps",
    "    fields: samples=1, temperature=0.0, tokens, think, then",
    "    example: demos:k=4+cot:samples=8,temperature=0.7",
    "    example: cot+lora",
)
SET_BY_TASK = {"head": "added to every arm of an encoder's classification; alone it is the arm: head"}


def lines() -> Iterator[str]:
    yield "Nothing trained"
    yield from (f"  {line}" for line in UNTRAINED)
    for folder in FOLDERS:
        yield ""
        yield folder.rpartition(".")[2].capitalize()
        for name in plugins.names(folder):
            yield from (f"  {line}" for line in _method(name, methods()[name]))
    yield ""
    yield "Search (alone in an arm; within 3 x steps x batch size passes of a row)"
    for name, found in searches().items():
        known: list[Field[Any]] = list(fields(found))  # type: ignore[arg-type]
        yield f"  {_first_line(name, found)}"
        yield f"  {_fields(known)}"
    yield ""
    yield "Join with +, name with =, as in: --arms prefix lora:rank=4 mam=prefix:length=30+adapter:placement=parallel"


def _method(name: str, method: type[Spec]) -> Iterator[str]:
    yield _first_line(name, method)
    if name in SET_BY_TASK:
        yield f"    {SET_BY_TASK[name]}"
        return
    known: list[Field[Any]] = list(fields(method))  # type: ignore[arg-type]
    if known:
        yield _fields(known)
    still = method.bound or method.whole_numbers  # a text's ids are no floats to train
    rates = "none" if still else ", ".join(f"{rate:g}" for rate in method.learning_rates)
    yield f"    a budget sets: {method.size or 'nothing'}; learning rates: {rates}"
    example = next((field for field in known if field.name == method.size), next(iter(known), None))
    if example is not None and _shown(example):
        yield f"    example: {name}:{example.name}={_shown(example)}"


def _first_line(name: str, method: type) -> str:
    return f"{name}: {(method.__doc__ or '').strip().splitlines()[0]}"


def _fields(known: list[Field[Any]]) -> str:
    return "    fields: " + ", ".join(
        field.name if field.default is None else f"{field.name}={_shown(field)}" for field in known
    )


def _shown(field: Field[Any]) -> str:
    value = field.default if field.default is not MISSING else None
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
