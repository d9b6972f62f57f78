"""The kinds of task, found in their folder; a task from its kind and the fields that were given, and back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, cast

from tunescope.errors import UserError
from tunescope.system import plugins, shell
from tunescope.system.option import FieldOption, options_of
from tunescope.tasks.task import Task

FOLDER = "tasks.kinds"
USUAL = "classification"  # the kind of a task that is not named


def kinds() -> dict[str, type[Task]]:
    """Name -> the class of that kind of task, sorted by name."""
    return {name: _class(name) for name in plugins.names(FOLDER)}


def kind_of(name: str) -> type[Task]:
    """The class of a kind of task.

    Raises:
        UserError: there is none of that name.
    """
    plugins.one_of("task", name, plugins.names(FOLDER))
    return _class(name)


def name_of(task: Task) -> str | None:
    """The name of the task's kind; None for a class that is in no file of the folder."""
    name = type(task).__module__.rpartition(".")[2]
    known = name in plugins.names(FOLDER) and type(task) is _class(name)
    return name if known else None


def make_task(given: Mapping[str, Any], model_kind: str) -> Any:
    """{"kind": "classification", field: value, ...} -> the task, with a template and a way of answering to suit.

    Raises:
        UserError: a kind or field that does not exist.
    """
    from pydantic import TypeAdapter, ValidationError

    own = {name: value for name, value in given.items() if name != "kind"}
    kind = kind_of(name := given["kind"])
    _check_known(name, kind, own)
    try:
        return TypeAdapter(kind).validate_python({**kind.usual(own, model_kind), **own})
    except ValidationError as problem:
        first = problem.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, UserError):
            raise cause from None
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"task {name}: '{where}' cannot be used: {first['msg'].lower()}.") from None


def _check_known(name: str, kind: type, given: Iterable[str]) -> None:
    known = [one.name for one in fields(cast(Any, kind)) if one.init]
    if (wrong := next((one for one in given if one not in known), None)) is not None:
        near = difflib.get_close_matches(wrong, known, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else f" It has: {', '.join(known)}."
        raise UserError(f"task {name} has no field {wrong!r}.{meant}")


def check_used(task: Task) -> None:
    """UserError for a field of the text that the template does not name, and for words that a head does not say.

    Asked of what is begun, not of what an earlier version has run.
    """
    if name_of(task) is None:
        return
    template = getattr(task, "template", "")
    for one in options_of(type(task)):
        named = getattr(task, one.field) if one.field in ("text", "input") else one.default
        if named != one.default and named not in task.fields():
            raise UserError(
                f"{one.names[0]} {named} has no use: the template, {template!r}, has no {{{named}}}. Write it "
                f"there, or leave {one.names[0]} out."
            )
    words: Mapping[str, str] = getattr(task, "words", {})
    if getattr(task, "by", "") == "head" and any(label != word for label, word in words.items()):
        raise UserError(
            "--words have no use: an encoder's head answers with no word. Leave them out; or, of a masked language "
            "model, type: --by words, with {mask} in the --template."
        )


def task_json(task: str | Task) -> dict[str, Any]:
    """The task's name and settings; of a class that tunescope does not have, only what it says of itself."""
    if isinstance(task, str):
        return {"kind": task}
    name = name_of(task)
    if name is None:
        return {"own": type(task).__name__}
    return {"kind": name, **{field: value for field, value in asdict(task).items() if field != "notes"}}  # type: ignore[call-overload]


def with_fields(task: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The task with those of the fields that are its own, by their names or their options', and the fields left over.

    Raises:
        UserError: a field of another kind of task.
    """
    own = _named(kind_of(task["kind"]))
    for kind in kinds().values():
        if wrong := next((name for name in given if name in _named(kind) and name not in own), None):
            others = " or ".join(repr(other) for other, one in kinds().items() if wrong in _named(one))
            raise UserError(f"compare({wrong}=...) is for task={others}, and this is task={task['kind']!r}.")
    told = dict(task)
    for name, value in given.items():
        if name in own and value is not None:
            told |= own[name].given(value)
    return told, {name: value for name, value in given.items() if name not in own}


def _named(kind: type[Task]) -> dict[str, FieldOption]:
    return {name: one for one in options_of(kind) for name in (one.field, one.key)}


def field_advice(given: Mapping[str, Any], field: str, close: str) -> str:
    """What to type where the rows have no such field: the option that names it, or the template with another in it.

    close: a field that they have, of nearly that name, or "".
    """
    named = [one for one in options_of(kind_of(given["kind"])) if one.names[0].endswith("-field")]
    for one in named:
        if given.get(one.field, one.default) == field:
            return f"Say which field is meant: {one.names[0]} FIELD"
    template = str(given.get("template") or "")
    if f"{{{field}}}" not in template:
        return ""
    meant = (named and given.get(named[0].field)) or close or "FIELD"
    return f"A template names fields of the file: --template {shell.word(template.replace(field, meant))}"


def has_field(kind: str, field: str) -> bool:
    """Whether tasks of that kind have a field of that name."""
    return field in {one.name for one in fields(kind_of(kind))}  # type: ignore[arg-type]


def _class(name: str) -> type[Task]:
    return plugins.only_class(plugins.load(FOLDER, name), Task)  # type: ignore[type-abstract]
