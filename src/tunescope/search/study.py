"""`tunescope search`: searches at several seeds, each prompt tested once, saved, and carried to other models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.models.load import load_model
from tunescope.report.text import clean
from tunescope.report.verdict import stats
from tunescope.report.verdict.stats import LEVEL
from tunescope.search import far_seeds, seeds
from tunescope.search.apply import stats_of
from tunescope.search.names import listed
from tunescope.search.objective import check_answers
from tunescope.search.search import Say, Search
from tunescope.search.seeds import Seed
from tunescope.search.transfer import Source, carried
from tunescope.system import files, job_folder, machine, run_folder, sealed_json
from tunescope.system.executors.local import Local
from tunescope.system.lock import locked
from tunescope.system.pieces import Place
from tunescope.tasks.make import check_used
from tunescope.trial import moved_files
from tunescope.trial.bench import Bench
from tunescope.trial.chat_day import on_its_day
from tunescope.trial.input_hashes import check_folder, input_hashes
from tunescope.trial.plan import Plan
from tunescope.trial.plan_json import to_json as plan_json
from tunescope.trial.provenance import data_of, inputs_of, model_of, of_template

Json = dict[str, Any]


@dataclass(frozen=True)
class SearchRequest:
    """What was typed. plan: model, data, task and seeds. transfer_to: models that the prompts are carried to."""

    plan: Plan
    methods: tuple[str, ...]
    passes: int
    transfer_to: tuple[str, ...] = ()


def study(request: SearchRequest, folder: Path, say: Say, command: str = "", place: Place | None = None) -> Json:
    """results.json, which is written to the folder with every prompt as an artifact in prompts/.

    What was found at a seed is kept as soon as it is: the same command goes on where it was stopped. place: where the
    seeds are searched at, in this process unless it is given.

    Raises:
        Submitted: the executor has a queue that is not waited for; the same command goes on.
        UserError: what is asked cannot be used, the folder is in use or holds another search or a whole one, or every
            search was refused.
    """
    chosen = listed(request.methods)
    if request.passes < 1:
        raise UserError(f"--passes {request.passes} is too small; give a whole number of 1 or more.")
    if more := request.plan.task.get("also"):
        only = request.plan.task["metric"]
        raise UserError(f"a search tells of one metric, and not of {' and '.join(more)}; type: --metric {only}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a new folder with --out.")
    with files.disk_errors_named(folder, files.SAME_COMMAND), locked(folder, say):
        request = replace(request, plan=on_its_day(request.plan, folder))
        return _held(request, chosen, folder, say, command, place or Place(Local(), 1))


def _held(request: SearchRequest, chosen: Sequence[Search], folder: Path, say: Say, command: str, place: Place) -> Json:
    """Everything between the question and results.json, in a folder that this process holds alone."""
    config, elsewhere = _check_folder(request, folder)
    with machine.threads(request.plan.threads):
        bench, stand_in = seeds.opened(request.plan, chosen)
        for told in of_template(request.plan.task.get("template")):
            say(f"note: {told}")
        read = input_hashes(bench)
        if "model" in elsewhere:
            check_folder(bench, folder, {name: digest for name, digest in read.items() if name.startswith("model.")})
        check_answers(bench)
        if not (folder / "config.json").exists():
            check_used(bench.task)
        source = Source(bench.task, stand_in)
        for target in request.transfer_to:
            load_model(target)  # a model that is not there is told before anything is searched
        bare = {} if stand_in else {request.plan.seeds[0]: stats_of(bench, "")}
        if not job_folder.leased(folder):  # else a worker may be writing there
            run_folder.sweep(folder)
            run_folder.drop_damaged(folder, say, "seeds/*.json")
        run_folder.write_config(folder, config | {"read": read}, ("read", *moved_files.PATHS))
        every = seeds.every(chosen, request.plan.seeds, request.passes)
        at_all = [one for some in every for one in some]
        for one in at_all:
            if seeds.has_lost_prompt(bench, one, folder):
                say(f"note: the prompt that {one} found is gone or damaged. It is looked for again.")
        refused = far_seeds.refused(bench, at_all, folder, place, say)
        found = [_search(bench, some, folder, refused, say) for some in every]
        if all(one["status"] == "refused" for one in found):
            raise UserError(f"every search was refused; {found[0]['name']}: {found[0]['reason']}")
        results = _facts(bench, request, command) | {
            "zero_shot": summary(bench, bare),
            "searches": [one | _against(bench, one, bare) for one in found],
            "transfer": [carried(request.plan, target, found, source, say) for target in request.transfer_to],
        }
        run_folder.check_stands(folder)
        sealed_json.put(folder / "results.json", files.finite(results))
    return results


def _check_folder(request: SearchRequest, folder: Path) -> tuple[Json, tuple[str, ...]]:
    """The question as it is kept in the folder, and what of it has another path now.

    Raises UserError for a folder that holds something else.
    """
    config = plan_json(request.plan) | {"searches": list(request.methods), "passes": request.passes}
    config |= {"transfer_to": list(request.transfer_to), "version": run_folder.VERSION}
    run_folder.check_own(folder, "search", "seeds")
    if _is_idle(folder):
        (folder / "config.json").unlink()
        files.remove(folder / "jobs")
    if (folder / "report.html").exists() and run_folder.kept(folder, folder / "results.json") is not None:
        raise UserError(f"{folder} holds a search that is done: see {folder / 'report.html'}, or name a new folder.")
    elsewhere = moved_files.other_paths(request.plan, folder)
    run_folder.check_config(folder, config, ("read", *elsewhere))
    return config, elsewhere


def _is_idle(folder: Path) -> bool:
    """Whether a search was asked there that left nothing, as one that was refused."""
    if not (folder / "config.json").exists() or job_folder.leased(folder):
        return False
    own = ("LOCK", "config.json", "jobs")  # what workers were asked, and refused
    files_left = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    left = any(not path.parts[0].startswith(own) for path in files_left)
    return not left and "searches" in run_folder.read_config(folder)


def _search(bench: Bench, some: Sequence[Seed], folder: Path, refused: Mapping[str, str], say: Say) -> Json:
    """One search at every seed; refused where one of them is. refused: those that were, elsewhere, and why."""
    name = seeds.named(some[0].search)
    runs: list[Json] = []
    try:
        for one in some:
            before = seeds.kept(bench, one, folder)
            if before is not None:
                say(f"{one}: found before, dev {before['found']['dev']:.3f}: {before['shown']}")
            elif reason := refused.get(seeds.identity(bench, one)):
                raise UserError(reason)
            runs.append(before or seeds.find(bench, one, folder, say))
            if before is None:
                say(seeds.line(one, runs[-1]))
    except files.DiskError:
        raise
    except UserError as problem:
        say(f"{name} is refused: {problem}")
        return {"name": name, "status": "refused", "reason": str(problem), "runs": runs}
    return {"name": name, "status": "done", "reason": "", "runs": runs}


def summary(bench: Bench, runs: Mapping[int, Any]) -> Json:
    """The mean test score over seeds, with its interval; None where nothing could be scored."""
    if not runs:
        return {"score": None, "interval": None}
    inputs = inputs_of(bench, "test")
    found = stats.interval(runs, stats.scorer(bench.task.metric), level=LEVEL, inputs=inputs)
    return {"score": found.value, "interval": [found.low, found.high]}


def _against(bench: Bench, one: Json, bare: Mapping[int, Any]) -> Json:
    """The score of a search, and its difference to no prompt on the same rows."""
    if one["status"] != "done":
        return {"score": None, "interval": None, "gain": None, "gain_interval": None}
    runs = stats.by_seed(one["runs"])
    if not bare:
        return summary(bench, runs) | {"gain": None, "gain_interval": None}
    without = dict.fromkeys(runs, next(iter(bare.values())))
    inputs = inputs_of(bench, "test")
    gap = stats.paired(runs, without, stats.scorer(bench.task.metric), level=LEVEL, inputs=inputs)
    return summary(bench, runs) | {"gain": gap.value, "gain_interval": [gap.low, gap.high]}


def _facts(bench: Bench, request: SearchRequest, command: str) -> Json:
    return {
        "version": run_folder.VERSION,
        "command": clean(command),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": machine.versions(),
        "machine": machine.describe(bench.device, request.plan.threads),
        "model": model_of(bench),
        "data": data_of(bench),
        "task": bench.task.describe(),
        "protocol": {"passes": request.passes, "seeds": list(request.plan.seeds), "level": LEVEL},
    }
