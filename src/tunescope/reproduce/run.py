"""A recipe run: its pieces done in processes of one thread each, kept as they are done, then the table."""

import multiprocessing
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.errors import UserError
from tunescope.models.load import model_name
from tunescope.report.cells import Table
from tunescope.report.findings_page import standalone
from tunescope.reproduce import far_pieces, page, piece
from tunescope.reproduce.ask import Ask, given
from tunescope.reproduce.earlier import taken_over
from tunescope.reproduce.inputs import free_paths, portable
from tunescope.reproduce.recipe import Found, Recipe, Settings, check, find
from tunescope.reproduce.show import as_json, as_text
from tunescope.system import files, job_folder, run_folder, sealed_json
from tunescope.system.crew import KILLED, Crew, crew
from tunescope.system.executor import HERE, Executor, check_workers
from tunescope.system.lock import locked
from tunescope.system.pieces import Place
from tunescope.system.say import say
from tunescope.trial.executor_name import parse
from tunescope.trial.provenance import of_template

Say = Callable[[str], None]

LONGEST = 100  # characters of the names of lines in the name of a folder


def reproduce(
    ask: Ask, out: Path, workers: int = 0, say: Say = say, executor: str = HERE, earlier: Path | None = None
) -> dict[str, Any]:
    """Run the recipe in the folder `out`, or go on with it there; writes report.html and result.json, and returns this.

    workers: processes; 0 means as many as there is room for. executor: where they are, as in `compare`. earlier: a
    result.json of this recipe, whose pieces are taken over and not done again.

    Raises:
        Submitted: the executor has a queue that is not waited for; the same command goes on.
        UserError: no such recipe, an option it does not take, workers below 0, a folder that is in use or holds another
            configuration, a full disk, or a piece whose process was killed twice.
    """
    check_workers(workers)
    recipe, place = find(ask.name), parse(executor)
    check(ask, recipe)
    settings = recipe.settings(ask)
    for told in of_template(ask.template):
        say(f"note: {told}")
    with files.disk_errors_named(out, files.SAME_COMMAND), locked(out, say):
        return _held(ask, recipe, settings, out, workers, say, place, earlier)


def so_far(ask: Ask, out: Path, say: Say = say) -> dict[str, Any]:
    """The result of the pieces that are done in the folder of a run, which may be going on; written and returned.

    Raises:
        UserError: no piece is done there, it holds another configuration, or the table needs all of the pieces.
    """
    recipe = find(ask.name)
    check(ask, recipe)
    settings = recipe.settings(ask)
    units = recipe.units(settings)
    lines = _lines(settings, units)
    if not getattr(recipe, "GROWS", False) and lines is None:
        raise UserError(f"The table of {ask.name} needs all of its pieces; leave out --so-far to go on.")
    run_folder.check_config(out, _config(ask, settings), free_paths(settings))
    told = [(unit, _told(out, piece.path(out, run_folder.identity(unit)), say)) for unit in units]
    found = [(unit, outcome) for unit, outcome in told if outcome is not None]
    if not found:
        raise UserError(
            f"No piece of {ask.name} is done in {out}; leave out --so-far to begin, or name a run by --out."
        )
    done = {run_folder.identity(unit) for unit, _ in found}
    some = {} if lines is None else {"lines": [line for unit, line in lines if run_folder.identity(unit) in done]}
    table = recipe.table(settings | some, found)
    part = f"{len(found)} of {len(units)} pieces are done: this is of these alone."
    notes = [part, *table.notes] if len(found) < len(units) else table.notes
    return _written(ask, recipe, settings, replace(table, notes=notes), found, out, say, {})


def _told(out: Path, path: Path, say: Say) -> dict[str, Any] | None:
    """What a piece has kept; None where it is not there, or is damaged, which is said."""
    found = run_folder.kept(out, path)
    if found is None and path.exists():
        say(f"note: {path} is damaged, and is left out.")
    return found


def _lines(settings: Settings, units: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]] | None:
    """Each piece with its line of the table; None where pieces are something else."""
    lines = settings.get("lines", ())
    if len(lines) != len(units) or not all(
        unit.items() <= line.items() for unit, line in zip(units, lines, strict=True)
    ):
        return None
    return list(zip(units, lines, strict=True))


def _held(
    ask: Ask,
    recipe: Recipe,
    settings: Settings,
    out: Path,
    workers: int,
    say: Say,
    place: Executor,
    earlier: Path | None,
) -> dict[str, Any]:
    """Everything between the question and the page, in a folder that this process holds alone."""
    config = _config(ask, settings)
    run_folder.check_own(out, "run of a recipe", "units", besides=("units",))  # which have names of their own
    if _is_idle(out):
        (out / "config.json").unlink()
    run_folder.check_config(out, config, free_paths(settings))
    run_folder.write_config(out, config, free_paths(settings))
    if not job_folder.leased(out):  # else a worker may be writing there
        run_folder.sweep(out)
    if earlier is not None:  # behind the check, for pieces of other settings would have the same names
        say(taken_over(ask.name, settings, recipe.units(settings), earlier, out))
    started = time.monotonic()
    if not place.is_remote:
        workers = workers or default_workers(ask)  # now that the model is here, its size is known
    found = _outcomes(ask.name, recipe, settings, out, workers, say, place)
    go = {"workers": workers, "seconds_of_this_go": round(time.monotonic() - started, 1)}
    return _written(ask, recipe, settings, recipe.table(settings, found), found, out, say, go)


def _is_idle(out: Path) -> bool:
    """Whether a recipe was asked there of which no piece came as far as to leave anything but its rows."""
    if not (out / "config.json").exists() or "recipe" not in run_folder.read_config(out):
        return False
    return not any(one.is_file() and one.parent.name != "data" for one in (out / "units").rglob("*"))


def _config(ask: Ask, settings: Settings) -> dict[str, Any]:
    return {"version": run_folder.VERSION, "recipe": ask.name, "settings": settings}


def _written(
    ask: Ask,
    recipe: Recipe,
    settings: Settings,
    table: Table,
    found: Found,
    out: Path,
    say: Say,
    go: Mapping[str, Any],
) -> dict[str, Any]:
    """The result, in its files. go: what is told of the processes that are at an end now."""
    result = _result(ask, recipe, settings, table, found) | dict(go)
    for measure in ("seconds", "cpu_seconds"):
        result[f"{measure}_of_pieces"] = round(sum(outcome.get(measure, 0.0) for _, outcome in found), 1)
    sealed_json.put(out / "result.json", result)
    for name, drawn in table.pictures.items():
        files.put(out / name, standalone(drawn).encode())
    files.put(out / "report.html", page.page(result, settings, table, found, out).encode())
    say(as_text(recipe.TITLE, table))
    return result


def _outcomes(
    name: str, recipe: Recipe, settings: Settings, out: Path, workers: int, say: Say, place: Executor | None = None
) -> Found:
    units = recipe.units(settings)
    paths = [piece.path(out, run_folder.identity(unit)) for unit in units]
    files.make_folder(out / "units")
    missing = [i for i, path in enumerate(paths) if run_folder.kept(out, path) is None]
    for path in (path for i, path in enumerate(paths) if i not in missing and getattr(recipe, "RESUMES", False)):
        files.remove(path.with_suffix(""))  # of a piece that was cut off between its outcome and its end
    for path in (paths[i] for i in missing if paths[i].exists()):
        say(f"note: {path} is damaged. It is made again.")
        files.remove(path)
    if missing and place is not None and place.is_remote:
        far_pieces.done(out, recipe, settings, missing, Place(place, workers), say)
    elif missing:
        with crew(workers, multiprocessing.get_context("spawn"), piece.single) as at_work:
            _done(at_work, piece.world, [(world,) for world in recipe.worlds(settings)], "world", say)
            pieces = [(name, settings, units[i], paths[i]) for i in missing]
            _done(at_work, piece.unit, pieces, "piece", say)
    kept = [path if path.exists() else piece.passing(path) for path in paths]
    if not all(path.exists() for path in kept):
        run_folder.check_stands(out)
    may_lack = run_folder.is_unsealed(out)
    return [(unit, sealed_json.read(path, may_lack=may_lack)) for unit, path in zip(units, kept, strict=True)]


def _done(at_work: Crew, work: Callable[..., str], pieces: Sequence[tuple[Any, ...]], what: str, say: Say) -> None:
    """Work on every piece, and say what came of it.

    Raises UserError, when all others are done, for one whose process was killed twice.
    """
    numbers = count(1)
    killed = at_work.run(
        partial(_with, work), pieces, lambda _, line: say(f"{what} {next(numbers)} of {len(pieces)}: {line}")
    )
    if killed:
        which = "; ".join(piece.named(one[2]) if what == "piece" else str(one[0]) for one in killed)
        raise UserError(f"{what} {which}: {KILLED}. What is done is kept: to go on, {files.SAME_COMMAND}.")


def _with(work: Callable[..., str], given: tuple[Any, ...]) -> str:
    return work(*given)


def _result(ask: Ask, recipe: Recipe, settings: Settings, table: Table, found: Found) -> dict[str, Any]:
    import torch

    from tunescope.system import machine

    return {
        "version": run_folder.VERSION,
        "recipe": ask.name,
        "title": recipe.TITLE,
        "source": recipe.SOURCE,
        "command": command(ask),
        "settings": portable(settings),
        "table": as_json(table),
        "units": [{"unit": unit, "outcome": outcome} for unit, outcome in found],
        "versions": machine.versions(),
        "machine": machine.describe(machine.default_device() if piece.compares(recipe) else torch.device("cpu"), 1),
    }


def command(ask: Ask) -> str:
    """The line that asks for this; paths by their last name alone."""
    named = {"data": shown, "test": shown}
    parts = ["tunescope", "reproduce", ask.name]
    for one in given(ask):
        value = getattr(ask, one.field)
        parts += one.words(named[one.field](value)) if one.field in named else []
        parts += one.words(model_name(value), [*map(model_name, ask.others)]) if one.field == "model" else []
        parts += one.words(value) if one.field not in (*named, "model") else []
    return shlex.join(parts)


def default_workers(ask: Ask) -> int:
    """One a core, or as many as have room where models are given; one, where it has all GPUs."""
    from tunescope.system import machine

    if ask.device_map:
        return 1
    return min([machine.cores(), *map(machine.default_workers, ask.models)])


def default_folder(ask: Ask) -> Path:
    """runs/reproduce/NAME with models and data, and with all that is asked otherwise than usual."""
    tags = [ask.name, *([ask.protocol] if ask.protocol != "tuned" else []), *(["quick"] if ask.quick else [])]
    tags += [Path(model).name for model in ask.models]
    tags += [shown(ask.data).partition(":")[0]] if ask.data else []
    counts = {"steps": ask.steps, "seeds": ask.seeds, "parts": ask.accumulate, "shown": ask.k}
    counts |= {"a-step": ask.batch_size, "inputs": ask.inputs}
    tags += [f"{count}-{what}" for what, count in counts.items() if count is not None]
    tags += [ask.load] if ask.load else []
    tags += [ask.precision] if ask.precision != "auto" else []
    lines = "-".join("".join(letter if letter.isalnum() else "-" for letter in line) for line in ask.lines)
    tags += [lines if len(lines) <= LONGEST else run_folder.identity({"lines": ask.lines})[:8]] if lines else []
    asked = {"template": ask.template, "words": ask.words, "test": ask.test}
    tags += [run_folder.identity(asked)[:8]] if any(asked.values()) else []
    return Path("runs") / "reproduce" / "-".join(tags)
