"""Pieces of an earlier result, so that a run goes on where another folder or machine ended."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.reproduce import piece
from tunescope.reproduce.inputs import HASHES, portable
from tunescope.reproduce.recipe import Settings
from tunescope.system import files, machine, run_folder, sealed_json

LISTS = {"lines", "worlds", "whole"}  # settings that only say which pieces there are
SAID = {"arms": "arm", "starts": "start"}  # and those that do where every piece says its own
NUMBERED = {"bases"}  # and which a piece says by its number, so that more of them may follow
SEARCHES = "searches"  # by name, so that others may stand beside it, where a piece says which is its own
PART = "part"  # of lines of which a piece says the part, so that more parts may follow
MADE_WITH = ("tunescope", "torch", "transformers")


def taken_over(name: str, settings: Settings, units: Sequence[dict[str, Any]], result: Path, out: Path) -> str:
    """Put the outcomes that a result.json holds of the units into the run's folder, and say how many.

    What is done in the folder stays as it is. Of what failed, or ran out of memory, nothing is taken: it is tried anew.

    Raises:
        UserError: the result is of another recipe, of other settings (a model, data, steps), of other versions of what
            it was made with, or has none of these.
    """
    if not result.is_file():
        raise UserError(f"--earlier {result}: there is no such file. Give the result.json of a run of {name}.")
    found = sealed_json.read(result, may_lack=True)
    if found.get("recipe") != name:
        raise UserError(f"{result} is a result of {found.get('recipe')}, not of {name}.")
    _same_versions(result, found.get("versions", {}))
    old = found.get("settings", {})
    _same_settings(result, _compared(old, units), _compared(portable(settings), units))
    more_seeds = old.get("seeds") != settings.get("seeds")  # a piece that names no seed may be of them all
    known = {
        run_folder.identity(one["unit"]): one["outcome"]
        for one in found.get("units", ())
        if ("seed" in one["unit"] or not more_seeds) and one["outcome"].get("status", "done") in piece.LASTING
    }
    asked = {run_folder.identity(unit) for unit in units}
    paths = {one: piece.path(out, one) for one in known if one in asked}
    if not paths:
        raise UserError(f"{result} has none of the {len(units)} pieces that {name} asks for; leave out --earlier.")
    files.make_folder(out / "units")
    for one, path in paths.items():
        if not path.exists():
            sealed_json.put(path, known[one])
    return f"{len(paths)} of {len(units)} pieces are taken from {result}."


def _compared(settings: Settings, units: Sequence[dict[str, Any]]) -> Settings:
    """Of the settings those that a piece depends on and does not say itself, as JSON has them."""
    said = LISTS | ({"seeds"} if any("seed" in unit for unit in units) else set())
    said |= {several for several, one in SAID.items() if all(one in unit for unit in units)}
    own = {key: value for key, value in settings.items() if key not in said}
    if not all("arm" in unit for unit in units):  # a piece is of several lines, and of these alone
        own |= {"lines": _by_part(settings.get("lines", ()), units)}
        own |= {key: [value] for key, value in own.items() if key == SEARCHES}
    parts = {key: _parts(key, value) for key, value in own.items()}
    flat = {f"{key}.{name}".rstrip("."): value for key, part in parts.items() for name, value in part.items()}
    kept: Settings = json.loads(json.dumps(flat))
    return kept


def _by_part(lines: Sequence[Mapping[str, Any]], units: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The names of the lines of each part; all together where a piece says no part."""
    named = all("part" in unit for unit in units)
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(f"{PART} {line.get('part', '')}".rstrip() if named else "", []).append(line["label"])
    return found


def _parts(key: str, value: Any) -> dict[str, Any]:
    if key in NUMBERED:
        return {str(number): one for number, one in enumerate(value)}
    return value if isinstance(value, dict) else {"": value}


def _same_settings(result: Path, old: Settings, new: Settings) -> None:
    several = (f"lines.{PART}", f"{SEARCHES}.", *(f"{one}." for one in NUMBERED))
    more = {key for key in old | new if key.startswith(several)}
    known = (set(old | new) - more) | (set(old) & set(new))
    held = {key.partition(".")[0] for key in old.keys() & new.keys()}  # a digest, or one of each part
    known -= {path for path, digest in HASHES.items() if digest in held}
    other = [f"{key} {old.get(key)}, here {new.get(key)}" for key in sorted(known) if old.get(key) != new.get(key)]
    if other:
        raise UserError(f"{result} was made with other settings ({'; '.join(other)}), so its pieces are not taken.")


def _same_versions(result: Path, old: dict[str, Any]) -> None:
    new = machine.versions()
    other = [f"{name} {old.get(name)}, here {new.get(name)}" for name in MADE_WITH if old.get(name) != new.get(name)]
    if other:
        raise UserError(f"{result} was made with other versions ({'; '.join(other)}), so its pieces are not taken.")
