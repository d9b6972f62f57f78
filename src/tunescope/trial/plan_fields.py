"""A plan from the fields that were given, by the names of `Plan`, `Settings` and their options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tunescope.errors import UserError
from tunescope.system.option import options_of
from tunescope.trial.plan import DEV_SHARE, MOST, NO_TEXT, PARTS, Plan
from tunescope.trial.plan_check import check_seeds
from tunescope.trial.train.settings import Settings

ELSEWHERE = (
    "model",
    "data",
    "task",
    "pilot_of",
    "trial_steps",
    "fit",
    "apart",
    "chosen_precision",
)  # fields that are not given as such
MANY = ("arms", "budgets", "rates")


def planned(
    model: str, data: str | Path | Mapping[str, str | Path], task: Mapping[str, Any], given: Mapping[str, Any]
) -> Plan:
    """The plan; what is not given, or None, is at its default, and the device is this machine's.

    given: such as arms=("lora",), budget=1000, seeds=3 (how many) or seeds=(1, 4) (which), steps=200, clip=0.5.

    Raises:
        UserError: there is no field of a name, or settings are given beside all of them.
    """
    of_plan, of_settings = _sorted(given)
    settings = of_plan.pop("settings", None)
    if settings is not None and of_settings:
        raise UserError(
            f"compare(settings=..., {next(iter(of_settings))}=...): settings says all of the training; give one."
        )
    asked: dict[str, Any] = {name: _many(value) if name in MANY else value for name, value in of_plan.items()}
    if "seeds" in asked:
        count = asked["seeds"]
        if isinstance(count, int) and not 0 <= count <= MOST:  # of none `check_seeds` says the same
            few = "few" if count < 0 else "many"
            raise UserError(f"--seeds {count} are too {few}; give how many, 1 to {MOST}, or which: two or more.")
        asked["seeds"] = tuple(range(count) if isinstance(count, int) else count)
        check_seeds(asked["seeds"])  # none is no word for the usual ones
    if "device" not in asked:
        asked["device"] = _device()
    if settings is None:  # who says all of the training, says how it is scored
        asked.setdefault("dev_share", DEV_SHARE)
    if "forgetting" in asked:
        asked["forgetting"] = text_path(asked["forgetting"])
    settings = settings or Settings(**of_settings)
    return Plan(model=model_path(model), data=data_paths(data), task=task, settings=settings, **asked)


def is_field(name: str) -> bool:
    """Whether a plan, or its settings, take a field that is given by that name."""
    return name in _names()


def _sorted(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Field -> value, of Plan and of Settings."""
    found: dict[type, dict[str, Any]] = {Plan: {}, Settings: {}}
    for name, value in given.items():
        if name not in _names():
            raise UserError(_unknown(name))
        kind, field = _names()[name]
        if value is None:
            continue
        if (word := _words().get((kind, field))) and word[0] and value == word[0]:
            found[Plan][word[1]] = True
            continue
        if isinstance(value, str) and not _takes_text(kind, field):
            raise UserError(
                f"compare({name}={value!r}) is a text, and takes {_taken(kind, field)}: leave the quotes out."
            )
        if field in found[kind]:
            raise UserError(f"compare({name}=...) is given twice: '{field}' is another name for it.")
        found[kind][field] = _whole(value) if _takes_whole(kind, field) else value
    return found[Plan], found[Settings]


def _taken(kind: type, field: str) -> str:
    return "True or False" if get_type_hints(kind)[field] is bool else "numbers"


@cache
def _takes_text(kind: type, field: str) -> bool:
    """Whether a text is among what the field's type allows, by itself or as one of several."""
    return str in _parts(get_type_hints(kind)[field])


@cache
def _takes_whole(kind: type, field: str) -> bool:
    """Whether the numbers that it takes are whole."""
    allowed = set(_parts(get_type_hints(kind)[field]))
    return int in allowed and float not in allowed


def _parts(hint: object) -> Iterator[object]:
    yield type(get_args(hint)[0]) if get_origin(hint) is Literal else hint
    for one in () if get_origin(hint) is Literal else get_args(hint):
        yield from _parts(one)


def _whole(value: object) -> object:
    """A whole number as an int, such as numpy's, or 1e3; several of them one by one; anything else as it is."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return int(float(value)) if float(value).is_integer() else float(value)
    return tuple(map(_whole, value)) if isinstance(value, Iterable) else value


@cache
def _names() -> dict[str, tuple[type, str]]:
    """What a field may be called -> whose it is, and its name there."""
    found: dict[str, tuple[type, str]] = {}
    for kind in (Plan, Settings):
        found |= {one.name: (kind, one.name) for one in fields(kind) if one.name not in ELSEWHERE}
        for one in options_of(kind):
            found |= {name: (kind, one.field) for name in (one.key, one.option.python) if name}
    return found


@cache
def _words() -> dict[tuple[type, str], tuple[str, str]]:
    """Of fields that take a word instead of a value: the word, and the field of the plan that it sets."""
    return {(kind, one.field): one.option.word for kind in (Plan, Settings) for one in options_of(kind)}


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _names(), n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    usual = [_usual(one) for one in _names().values()]
    return f"compare has no field {name!r}.{meant} It has: {', '.join(dict.fromkeys(usual))}."


def _usual(place: tuple[type, str]) -> str:
    """The name by which a field is usually given in Python."""
    kind, field = place
    option = next((one for one in options_of(kind) if one.field == field), None)
    return (option.option.python or option.key) if option else field


def _many(value: str | float | Iterable[object]) -> tuple[object, ...]:
    return (value,) if isinstance(value, str | int | float) else tuple(value)


def _device() -> str:
    from tunescope.system import machine

    return machine.default_device().type


def model_path(model: str) -> str:
    """A model's folder or file as it is found from any folder; a name on the hub as it is."""
    return str(Path(model).absolute()) if Path(model).exists() else model


def data_paths(data: str | Path | Mapping[str, str | Path]) -> dict[str, str]:
    """{"train": ..., "dev": ..., "test": ...} as absolute paths, of one file, a mapping, or a corpus (NAME:FOLDER).

    Raises UserError for other parts, for none to train on, and for a corpus or a part of it that is not there.
    """
    from tunescope.data.corpus import expanded  # reads tables and archives, which --help need not

    given = data if isinstance(data, Mapping) else {"train": data}
    if set(given) - set(PARTS) or "train" not in given:
        parts = ", ".join(sorted(map(str, given))) or "none"
        raise UserError(f"data has the parts {parts}; it needs 'train' and may have 'dev' and 'test'.")
    return expanded(given)


def text_path(given: str | Path) -> str:
    """What --forgetting was given, a file as an absolute path."""
    return str(given) if str(given) in ("", NO_TEXT) else str(Path(given).absolute())
