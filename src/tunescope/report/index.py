"""One page over all runs in a folder: verdict, best arm, size and time of each, to be sorted and searched.

Where an arm was run on all eight tasks of SuperGLUE, its mean over them too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from tunescope.errors import UserError
from tunescope.report import superglue, text
from tunescope.report.page import check_own, file, policy, template
from tunescope.report.view import View, view
from tunescope.system import files, run_folder

Json = Mapping[str, Any]
NAME = "index.html"
BROKEN = (UserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def entries(folder: Path) -> list[dict[str, Any]]:
    """A row for every results.json below the folder, by path; one that cannot be read has the reason alone.

    Raises:
        UserError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; type: tunescope index FOLDER, where FOLDER holds runs.")
    found = [_entry(path.parent, folder) for path in sorted(folder.rglob("results.json")) if not _is_search(path)]
    if not found:
        raise UserError(f"{folder} holds no run: no results.json of a comparison is in it or below it.")
    return found


def _is_search(results: Path) -> bool:
    """Whether these are of `tunescope search`, which has a page of its own and no arms."""
    try:
        return "searches" in files.read_json(results)
    except (UserError, OSError):
        return False


def _entry(run: Path, folder: Path) -> dict[str, Any]:
    place = run.relative_to(folder).as_posix()
    link = f"./{quote(f'{place}/report.html')}" if (run / "report.html").exists() else ""
    head = {"run": str(text.clean(place)) if place != "." else str(text.clean(folder.resolve().name)), "link": link}
    try:
        results = run_folder.read_results(run)
        row = _row(view(results)) | {"seconds": _seconds(results)}
        return head | {"problem": ""} | row | {"superglue": superglue.scores(results)}
    except BROKEN as problem:
        reason = str(problem) if isinstance(problem, UserError) else f"results.json does not hold a run ({problem!r})"
        return head | {"problem": str(text.clean(reason))}


def _row(seen: View) -> dict[str, Any]:
    raw, best = seen.raw, next((arm for arm in seen.done if arm["key"] == seen.best_key), None)
    return {
        "created": str(raw.get("created") or "")[:10],
        "model": str(raw["model"].get("name") or ""),
        "data": str((raw["data"].get("test") or {}).get("path") or ""),
        "task": str(raw["task"].get("kind") or ""),
        "metric": seen.frame.metric,
        "answer": seen.answer,
        "best": best["name"] if best else "",
        "score": best["score"] if best else None,
        "shown": best["shown"] if best else "",
        "span": best["span"] if best else "",
        "stored": best["stored"] if best else None,
        "done": len(seen.done),
        "arms": len(seen.arms),
        "seeds": max((len(arm["runs"]) for arm in seen.done), default=0),
    }


def _seconds(results: Json) -> float:
    """Of every run once, of learning rates that lost too; results of earlier versions hold those of tested runs."""
    found = [run for arm in results["arms"] for part in ("trials", "runs") for run in arm.get(part) or ()]
    spent = {run.get("id") or place: run.get("seconds") for place, run in enumerate(found)}
    return sum(one for one in spent.values() if isinstance(one, int | float) and math.isfinite(one))


def html(found: Sequence[Json], heading: str) -> str:
    """One self-contained page; equal rows give equal bytes."""
    style, script = file("page.css") + file("outputs.css"), file("fields.js") + file("index.js")
    made: str = template("index.html.j2").render(
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        heading=text.clean(heading),
        runs=found,
        superglue=_superglue(found),
        says=superglue.SAYS,
        tasks=list(superglue.TASKS),
    )
    return made


def _superglue(found: Sequence[Json]) -> list[dict[str, Any]]:
    return superglue.means([one["superglue"] | {"run": one["run"]} for one in found if one.get("superglue")])


def write(folder: Path) -> Path:
    """FOLDER/index.html; UserError as `entries`, and where the folder holds another file of that name."""
    path, found = folder / NAME, entries(folder)
    check_own(path, "tunescope index", "an index of runs", "index another folder")
    files.put(path, html(found, folder.resolve().name).encode())
    return path


def lines(found: Sequence[Json]) -> Iterator[str]:
    """For the terminal: a line a run, then one for every arm that was run on all tasks of SuperGLUE."""
    for one in found:
        if one["problem"]:
            yield f"{one['run']}: {one['problem']}"
        else:
            yield f"{one['run']}: {one['answer']}; {one['best']} {one['shown']} ({one['model']} on {one['data']})"
    yield from superglue.lines(_superglue(found))
