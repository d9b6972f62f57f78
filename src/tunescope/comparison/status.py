"""Where a run is, read from its folder by anybody: what the leading process wrote, and what its workers did since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunescope.comparison.board import FILE, Row, whole
from tunescope.comparison.progress import duration
from tunescope.errors import UserError
from tunescope.system import job_folder, lease, lock, run_folder, shell
from tunescope.system.job_folder import JobFolder

ENDS = ("done", "diverged", "out of memory", "refused", "failed")  # what becomes of an arm when its runs are over


def lines(run: Path) -> Iterator[str]:
    """Every arm in a line, then the whole run.

    Raises:
        UserError: no run was begun there.
    """
    told = _read(run)
    rows = [Row(**row) for row in told["arms"]]
    if lock.holder(run) is None:  # what it was at when it went away goes on later
        for row in rows:
            row.now = {}
    for name, (arm, what) in told["jobs"].items():
        _catch_up(run, next(row for row in rows if row.arm == arm), name, what)
    width = max((len(row.arm) for row in rows), default=0)
    for row in rows:
        yield f"{row.arm:{width}}  {_row(row)}"
        yield from (f"{'':{width}}  {_running(one)}" for one in row.now.values())
    yield whole(rows, told["slots"])
    yield _who(run, told)


def is_over(run: Path) -> bool:
    """Whether nobody will change what `lines` says."""
    return _read(run)["state"] != "running" or (lock.holder(run) is None and not _is_queue_at_it(run))


def _is_queue_at_it(run: Path) -> bool:
    """Whether a worker elsewhere is at a job, or one waits in a queue."""
    return any(lease.may_live(one.lease) or one.waits for one in job_folder.every(run))


def _read(run: Path) -> dict[str, Any]:
    run_folder.read_config(run)
    run_folder.check_is_comparison(run)
    try:
        told = json.loads((run / FILE).read_text())
        if not isinstance(told, dict) or not told.keys() >= {"arms", "jobs", "slots", "state"}:
            raise ValueError("it holds no state of a run")
        return told
    except FileNotFoundError:
        raise UserError(
            f"{run} has not begun its first run, or is of an older version; type: tunescope resume {shell.path(run)}"
        ) from None
    except (OSError, ValueError) as problem:
        raise UserError(f"{run / FILE} cannot be read ({problem}).") from None


def _catch_up(run: Path, row: Row, name: str, what: str) -> None:
    """What workers on other machines have done since the leading process last looked, if it still does."""
    if name in row.done:
        return
    folder, found = JobFolder(run, name), run_folder.finished(run, name)
    if found is not None:
        row.ended(name, found)
    elif lease.may_live(folder.lease):
        row.now[name] = {"run": what, **(folder.progress() or {"host": ""})}
    elif folder.waits:
        row.status = "queued"


def _row(row: Row) -> str:
    lost = [status for status in row.done.values() if status not in ("done", "lost")]
    best = "" if row.best is None else f"  best dev {row.best:.4g}"
    state = row.status if not row.done and not row.now else "running" if row.now else ""
    state = "done" if row.done and len(row.done) >= row.total else state
    state = row.status if row.status in ENDS else state
    told = f"{len(row.done)}/{row.total} runs{best}" if row.total else ""
    others = ", ".join(one for one in dict.fromkeys(lost) if one != state)
    return "  ".join(part for part in (told, state, others) if part)


def _running(one: dict[str, Any]) -> str:
    where = f" on {one['host']}" if one.get("host") else ""
    if "step" not in one:
        return f"{one['run']}{where}: begun"
    return f"{one['run']}{where}: step {one['step']}/{one['steps']}, {duration(one['seconds_left'])} left"


def _who(run: Path, told: dict[str, Any]) -> str:
    if told["state"] == "finished":
        return f"finished; to see what came of it, type: tunescope report {shell.path(run)}"
    holder = lock.holder(run)
    if holder is not None:
        return f"led by process {holder['pid']} on {holder['host']}, executor {told['executor']}"
    if _is_queue_at_it(run):
        return f"with the queue of {told['executor']}; when it is through, type: tunescope resume {shell.path(run)}"
    return f"nobody works on it; to go on, type: tunescope resume {shell.path(run)}"
