"""Methods by name: a file in `contexts/` or `deltas/` is a method; its file name is its name on the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache, partial
from typing import Any, TypeVar, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tunescope.errors import UserError
from tunescope.methods.artifact import Spec
from tunescope.system import escapes, plugins

FOLDERS = ("methods.contexts", "methods.deltas")
SEARCHES = "search.methods"
LARGEST = 2**31 - 1
FINITE = ConfigDict(allow_inf_nan=False)
_adapter = cache(partial(TypeAdapter, config=FINITE))  # of a hint; to make one takes longer than to use it
SIGNS = ",+"  # of an arm, which a backslash makes a part of a text
Made = TypeVar("Made")
Kind = TypeVar("Kind", bound=Spec)


@cache
def methods() -> dict[str, type[Spec]]:
    """Every method by its name on the command line."""
    return {
        name: plugins.only_class(plugins.load(folder, name), Spec)
        for folder in FOLDERS
        for name in plugins.names(folder)
    }


@cache
def name_of(method: type[Spec]) -> str:
    return method.__module__.rpartition(".")[2]


def parse(arm: str) -> tuple[Spec, ...]:
    """ "prefix:length=30+adapter:placement=parallel,sites=ffn" -> the methods, as their constructors give them.

    "+" composes, "," separates fields, and an item without "=" goes on with the field before it (more sites, or more
    of a text). A backslash makes the "," or "+" after it a part of a text.
    """
    return tuple(_one(part) for part in _parts(arm))


def explicit(arm: str) -> list[set[str]]:
    """The fields that an arm string sets, for each of its methods."""
    return [set(_fields_given(part)) for part in _parts(arm)]


def _parts(arm: str) -> list[str]:
    return escapes.cut(arm, rf"\+(?=(?:{'|'.join(map(re.escape, methods()))})(?:[:+]|\Z))", SIGNS)


def show(specs: tuple[Spec, ...] | list[Spec]) -> str:
    """The arm string of the methods: `parse(show(specs)) == specs`. Fields at their defaults are left out."""
    return "+".join(_shown(spec) for spec in specs)


def _shown(spec: Spec) -> str:
    return shown(spec, lambda text: parse(text) == (spec,))


def shown(spec: Any, is_read_as_meant: Callable[[str], bool]) -> str:
    """The string that comes to these fields, escaped only where the plain one would be read as something else."""
    plain = _written(spec, str)
    try:
        is_clear = "\\" not in plain and is_read_as_meant(plain)
    except UserError:
        is_clear = False
    return plain if is_clear else _written(spec, lambda text: escapes.written(text, SIGNS))


def _written(spec: Spec, written: Callable[[str], str]) -> str:
    items = []
    for field in fields(spec):  # type: ignore[arg-type]
        value = getattr(spec, field.name)
        default = field.default if field.default is not MISSING else None
        if value != default:
            if isinstance(value, tuple):
                shown = ",".join(map(str, value))
            else:
                shown = written(value) if isinstance(value, str) else value
            items.append(f"{field.name}={shown}")
    return name_of(type(spec)) + (":" + ",".join(items) if items else "")


def _fields_given(part: str, typed_as: str = "Arm") -> dict[str, str]:
    _, _, tail = part.partition(":")
    given: dict[str, str] = {}
    last = None
    for item in escapes.cut(tail, ",", SIGNS) if tail else []:
        key, equals, value = item.partition("=")
        if equals and key.isidentifier():
            if key in given:
                raise UserError(f"{typed_as} {part!r} has the field {key!r} twice; give it once.")
            last = key
            given[key] = value
        elif last is None:
            raise UserError(
                f"{typed_as} {part!r}: {item!r} is no field=value. Write it as in lora:rank=4,sites=attn.q,attn.v."
            )
        else:
            given[last] += f",{item}"
    return given


def _one(part: str) -> Spec:
    found: Spec = built(part, methods(), "Arm", "method")
    return found


def built(part: str, known: Mapping[str, type], typed_as: str, what: str) -> Any:
    """ "lora:rank=4" -> what its constructor gives, of the classes that are known by name.

    typed_as, what: "Arm" and "method", for the messages.

    Raises:
        UserError: no such name or field, or a value that the field's type does not allow.
    """
    name = part.partition(":")[0].strip()
    if name not in known:
        if what == "method" and name in plugins.names(SEARCHES):
            raise UserError(f"{typed_as} {part!r}: {name!r} is a search, which stands alone as an arm and joins none.")
        wrong = next((one for one in map(str.strip, name.split("+")) if one not in known), name)  # of several the first
        near = difflib.get_close_matches(wrong, known, n=1)
        raise UserError(
            f"{typed_as} {part!r}: no {what} {wrong!r}."
            + (f" Did you mean {near[0]!r}?" if near else "")
            + f" {what.capitalize()}{'es' if what.endswith('ch') else 's'}: {', '.join(known)}."
        )
    return made(known[name], part, typed_as)


def made(kind: type[Made], part: str, typed_as: str = "Arm") -> Made:
    """A dataclass from what was typed for it, "name:field=value,field=value"; fields left out are at their defaults.

    Raises:
        UserError: no such field, or a value that its type does not allow.
    """
    name = part.partition(":")[0].strip()
    hints = _hints(kind)  # type: ignore[arg-type]
    its_fields = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    values = {}
    for key, text in _fields_given(part, typed_as).items():
        if key not in its_fields:
            near = difflib.get_close_matches(key, its_fields, n=1)
            raise UserError(
                f"{typed_as} {part!r}: {name!r} has no field {key!r}."
                + (f" Did you mean {near[0]!r}?" if near else "")
                + f" Its fields: {', '.join(its_fields) or 'none'}."
            )
        values[key] = _value(hints[key], escapes.plain(text, SIGNS), f"{typed_as} field '{name}:{key}={text}'")
    return kind(**values)


def check_fields(spec: Spec) -> None:
    """Raises UserError for a field that its type does not allow: a dataclass takes any placement, misspelt ones too."""
    hints = _hints(type(spec))
    for field in fields(spec):  # type: ignore[arg-type]
        given = getattr(spec, field.name)
        asked = f"{type(spec).__name__}({field.name}={given!r})"
        if get_origin(hints[field.name]) is tuple and isinstance(given, str | int):
            several = given.split(",") if isinstance(given, str) else [given]
            typed = f"{field.name}={_valid(hints[field.name], tuple(several), asked)!r}"
            raise UserError(f"{asked}: {field.name} is a tuple, of one too: type {typed}.")
        _valid(hints[field.name], given, asked, strict=not isinstance(given, list))


def with_tuples(spec: Kind) -> Kind:
    """The spec with tuples where lists were given: it is compared, saved and hashed as such. Itself without any."""
    given = {field.name: getattr(spec, field.name) for field in fields(spec)}  # type: ignore[arg-type]
    lists = {name: tuple(one) for name, one in given.items() if isinstance(one, list)}
    return replace(spec, **lists) if lists else spec  # type: ignore[type-var]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, text: str, asked: str) -> Any:
    given: Any = tuple(text.split(",")) if "tuple" in str(hint) else text
    if text == "None" and "None" in str(hint):
        return None
    return _valid(hint, given, asked)


def _valid(hint: Any, given: Any, asked: str, *, strict: bool = False) -> Any:
    """What was given as its type takes it, text as a number too where it is not strict. UserError for all else."""
    try:
        found = _adapter(hint).validate_python(given, strict=strict)
    except ValidationError as error:
        raise UserError(f"{asked}: {error.errors()[0]['msg'].lower()}.") from None
    if isinstance(found, int) and abs(found) > LARGEST:
        raise UserError(f"{asked}: input should be at most {LARGEST}.")
    return found
