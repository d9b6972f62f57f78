"""A task from its kind and the fields that were given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunescope.errors import UserError
from tunescope.system.plugins import one_of
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning


def make_task(given: Mapping[str, Any], model_kind: str) -> Any:
    """{"kind": "classification", field: value, ...} -> the task, with a template and a way of answering to suit.

    Raises:
        UserError: a kind or field that does not exist.
    """
    from pydantic import TypeAdapter, ValidationError

    kinds: dict[str, Any] = {
        "classification": Classification,
        "generation": Generation,
        "reasoning": Reasoning,
    }
    fields = dict(given)
    name = fields.pop("kind")
    one_of("task", name, list(kinds))
    if name == "classification":
        encoder = model_kind == "encoder"
        by = fields.setdefault("by", "head" if encoder else "words")
        end = "" if by == "head" else " It was {mask}." if encoder else "\nLabel:"
        fields.setdefault("template", f"{{{fields.get('text', 'text')}}}" + end)
    else:
        asked = "Q: {%s}\nA:" if name == "reasoning" else "{%s}\n"
        fields.setdefault("template", asked % fields.get("input", "input"))
    try:
        return TypeAdapter(kinds[name]).validate_python(fields)
    except ValidationError as problem:
        first = problem.errors()[0]
        own = first.get("ctx", {}).get("error")
        if isinstance(own, UserError):
            raise own from None
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"task {name}: '{where}' cannot be used: {first['msg'].lower()}.") from None
