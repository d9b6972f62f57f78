"""An option of the command line, said where its field is: `batch_size: Annotated[int, Option("rows of one update.")]`.

The options of a verb, the names that Python takes and the command in a result file are all made from these fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tunescope.system.label_pairs import pair, pairs


@dataclass(frozen=True)
class Option:
    """How a field is typed.

    help: its line in --help; {kinds} stands for the kinds of task that have it.
    names: as typed, the one that messages use first; () is the field's own name with dashes.
    python: a further name for it in Python.
    rest: another field, which takes all values behind the first.
    word: what can be typed instead of a value, and the field that is then set.
    shows_default: whether --help tells the field's default.
    command: where the command in a result file names it: where it is not the field's default, always, or never.
    """

    help: str
    names: tuple[str, ...] = ()
    python: str = ""
    rest: str = ""
    word: tuple[str, str] = ("", "")
    shows_default: bool = False
    command: Literal["changed", "always", "never"] = "changed"


@dataclass(frozen=True)
class FieldOption:
    """An option, with the field that it sets."""

    field: str
    option: Option
    holds: Any  # the field's type
    default: object

    @property
    def names(self) -> tuple[str, ...]:
        """As typed: --text-field, --text."""
        return self.option.names or (f"--{self.field.replace('_', '-')}",)

    @property
    def key(self) -> str:
        """The first of them as a name in Python: text_field."""
        return self.names[0].removeprefix("--").replace("-", "_")

    @property
    def typed(self) -> Any:
        """The type of what is typed: of a mapping its LABEL=WORD, several values as a tuple."""
        if get_origin(self.holds) is Mapping:
            return tuple[str, ...]
        if get_origin(self.holds) in (tuple, Literal):
            return self.holds
        one = next((one for one in get_args(self.holds) if one is not NoneType), self.holds)
        if self.option.word[0]:
            return one | Literal[self.option.word[0]]
        return tuple[one, ...] if self.option.rest else one  # type: ignore[valid-type]

    def read(self, value: Any) -> dict[str, Any]:
        """Field -> value, of what was typed."""
        if get_origin(self.holds) is Mapping:
            return {self.field: pairs(self.names[0], value)}
        if self.option.rest:
            return {self.field: value[0]} | ({self.option.rest: value[1:]} if value[1:] else {})
        return {self.field: value}

    def given(self, value: Any) -> dict[str, Any]:
        """Field -> value, of what was given in Python, where LABEL=WORD may be a mapping and one value stand alone."""
        if isinstance(value, Mapping):
            return {self.field: dict(value)}
        several = isinstance(value, list | tuple)
        if self.option.rest or get_origin(self.holds) is Mapping:
            return self.read(tuple(value) if several else (value,))
        return {self.field: tuple(value) if several else value}

    def words(self, value: Any, rest: Sequence[Any] = ()) -> list[str]:
        """What is typed for a value; nothing for one that is empty."""
        value = (self.default if value is None else value, *rest) if rest else value
        if isinstance(value, Mapping):
            value = [pair(label, word) for label, word in value.items()]
            value = [",".join(value)] if any(one.startswith("-") for one in value) else value
        if value is None or value is False or value in ("", (), []):
            return []
        if value is True:
            return [self.names[0]]
        texts = [_short(one) for one in value] if isinstance(value, tuple | list) else [str(value)]
        if any(text.startswith("-") for text in texts):
            return [f"{self.names[0]}={text}" for text in texts]  # else it is taken for an option
        return [self.names[0], *texts]


@cache
def options_of(kind: type) -> tuple[FieldOption, ...]:
    """The options that the fields of a dataclass say, in the fields' order."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in dataclasses.fields(kind):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        holds, *said = get_args(hints[field.name])
        found += [FieldOption(field.name, one, holds, field.default) for one in said if isinstance(one, Option)]
    return tuple(found)


def _short(value: object) -> str:
    """A number as short as it can be typed."""
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
