"""A recipe run: its pieces done in processes of one thread each, kept as they are done, then the table."""

import multiprocessing
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.models.load import model_name
from tunescope.report.cells import Table
from tunescope.report.findings_page import standalone
from tunescope.reproduce import page
from tunescope.reproduce.inputs import portable
from tunescope.reproduce.recipe import Ask, Found, Settings, check, find
from tunescope.reproduce.show import as_json, told
from tunescope.system import files, run_folder

Say = Callable[[str], None]
LASTING = ("done", "diverged", "refused")  # statuses that another attempt would not change


def reproduce(ask: Ask, out: Path, workers: int = 0, say: Say = print) -> dict[str, Any]:
    """Run the recipe in the folder `out`, or go on with it there; writes report.html and result.json, and returns this.

    workers: processes; 0 means as many as there is room for.

    Raises:
        UserError: no such recipe, an option it does not take, or a folder that holds another configuration.
    """
    recipe = find(ask.name)
    check(ask, recipe)
    settings = recipe.settings(ask)
    config = {"version": run_folder.VERSION, "recipe": ask.name, "settings": settings}
    out.mkdir(parents=True, exist_ok=True)
    run_folder.check_config(out, config)
    run_folder.write_config(out, config)
    started = time.monotonic()
    workers = workers or default_workers(ask)  # now that the model is here, its size is known
    found = _found(recipe, settings, out, workers, say)
    table = recipe.table(settings, found)
    result = _result(ask, recipe, settings, table, found) | {"workers": workers}
    for measure in ("seconds", "cpu_seconds"):
        result[f"{measure}_of_pieces"] = round(sum(outcome.get(measure, 0.0) for _, outcome in found), 1)
    result["seconds_of_this_go"] = round(time.monotonic() - started, 1)
    files.put_json(out / "result.json", result)
    for name, drawn in table.pictures.items():
        files.put(out / name, standalone(drawn).encode())
    files.put(out / "report.html", page.page(result, settings, table, found, out).encode())
    say(told(recipe.TITLE, table))
    return result


def _found(recipe: Any, settings: Settings, out: Path, workers: int, say: Say) -> Found:
    units = recipe.units(settings)
    paths = [out / "units" / f"{run_folder.identity(unit)}.json" for unit in units]
    (out / "units").mkdir(exist_ok=True)
    missing = [i for i, path in enumerate(paths) if not path.exists()]
    if missing:
        with _pool(workers) as pool:
            worlds = recipe.worlds(settings)
            _ended((pool.submit(_world, world) for world in worlds), len(worlds), "world", say)
            name = recipe.__name__
            todo = (pool.submit(_unit, name, settings, units[i], paths[i]) for i in missing)
            _ended(todo, len(missing), "piece", say)
    told = [path if path.exists() else _passing(path) for path in paths]
    return [(unit, files.read_json(path)) for unit, path in zip(units, told, strict=True)]


def _passing(path: Path) -> Path:
    """Where the outcome of a piece lies that failed, and is tried again by the next go."""
    return path.with_suffix(".failed.json")


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_single)
    try:
        yield pool
    except BaseException:
        processes = list((pool._processes or {}).values())  # gone after the shutdown
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        raise
    pool.shutdown()


def _single() -> None:
    """One thread a process: small models gain nothing from more."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()


def _ended(futures: Iterable[Future[str]], total: int, what: str, say: Say) -> None:
    for number, future in enumerate(as_completed(list(futures)), 1):
        say(f"{what} {number} of {total}: {future.result()}")


def _world(world: Any) -> str:
    from tunescope.lab.worlds.pretrained import pretrained

    started = time.monotonic()
    pretrained(world)
    return f"{world} ({time.monotonic() - started:.0f} s)"


def _unit(name: str, settings: Settings, unit: dict[str, Any], path: Path) -> str:
    import importlib

    started, worked = time.monotonic(), time.process_time()
    recipe = importlib.import_module(name)
    own = (path.with_suffix(""),) if _compares(recipe) else ()
    outcome = recipe.work(settings, unit, *own)
    outcome["seconds"] = round(time.monotonic() - started, 1)
    outcome["cpu_seconds"] = round(time.process_time() - worked, 1)
    lasts = outcome.get("status", "done") in LASTING
    files.remove(_passing(path))  # of an earlier go
    files.put_json(path if lasts else _passing(path), outcome)
    return f"{_came_of(unit, outcome)} ({outcome['seconds']:.0f} s)"


def _came_of(unit: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    """A piece by what distinguishes it, and of a comparison the mean of each score over seeds, or why there is none."""
    named = ", ".join(f"{key} {value}" for key, value in unit.items() if value not in (None, ""))
    means = [f"{metric} {fmean(values):.3f}" for metric, values in outcome.get("scores", {}).items() if values]
    ending = ", ".join(means) or outcome.get("reason", "")
    return f"{named}: {ending}" if ending else named


def _compares(recipe: Any) -> bool:
    """Whether its pieces are comparisons, each in a folder of its own, on the device that these take."""
    return bool(getattr(recipe, "KEEPS", False))


def _result(ask: Ask, recipe: Any, settings: Settings, table: Table, found: Found) -> dict[str, Any]:
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
        "machine": machine.describe(machine.default_device() if _compares(recipe) else torch.device("cpu"), 1),
    }


def command(ask: Ask) -> str:
    """The line that asks for this; paths by their last name alone."""
    parts = ["tunescope", "reproduce", ask.name]
    parts += ["--protocol", ask.protocol] if ask.protocol != "tuned" else []
    parts += ["--quick"] if ask.quick else []
    parts += ["--seeds", str(ask.seeds)] if ask.seeds is not None else []
    parts += ["--model", *map(model_name, ask.models)] if ask.models else []
    parts += ["--data", shown(ask.data)] if ask.data else []
    parts += ["--steps", str(ask.steps)] if ask.steps is not None else []
    parts += ["--precision", ask.precision] if ask.precision != "auto" else []
    parts += ["--accumulate", str(ask.accumulate)] if ask.accumulate is not None else []
    return shlex.join(parts)


def default_workers(ask: Ask) -> int:
    """One a core, or as many as have room where models are given."""
    from tunescope.system import machine

    return min([machine.cores(), *map(machine.default_workers, ask.models)])


def default_folder(ask: Ask) -> Path:
    """runs/reproduce/NAME with models and data, and with all that is asked otherwise than usual."""
    tags = [ask.name, *([ask.protocol] if ask.protocol != "tuned" else []), *(["quick"] if ask.quick else [])]
    tags += [Path(model).name for model in ask.models]
    tags += [shown(ask.data).partition(":")[0]] if ask.data else []
    counts = {"steps": ask.steps, "seeds": ask.seeds, "parts": ask.accumulate}
    tags += [f"{count}-{what}" for what, count in counts.items() if count is not None]
    tags += [ask.precision] if ask.precision != "auto" else []
    return Path("runs") / "reproduce" / "-".join(tags)
