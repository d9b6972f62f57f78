"""`tunescope search`: searches at several seeds, each prompt tested once, saved, and carried to other models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tunescope import __version__
from tunescope.attachment.artifact_folder import load, save
from tunescope.data import scores
from tunescope.errors import UserError
from tunescope.methods.contexts.text import Text
from tunescope.methods.text_form import name_of
from tunescope.methods.text_form import show as shown_arm
from tunescope.models.load import load_model
from tunescope.report.text import clean
from tunescope.report.verdict import stats
from tunescope.report.verdict.stats import LEVEL
from tunescope.search.apply import made, stats_of, with_found
from tunescope.search.names import listed, show
from tunescope.search.objective import check_answers
from tunescope.search.search import Found, Say, Search
from tunescope.search.transfer import Source, carried
from tunescope.search.without_words import open_unworded
from tunescope.system import files, machine, run_folder, sealed_json
from tunescope.system.lock import locked
from tunescope.tasks.task import Task
from tunescope.trial.bench import Bench
from tunescope.trial.identity import asked_with
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_json import to_json as plan_json
from tunescope.trial.provenance import data_of, inputs_of, model_of

Json = dict[str, Any]


@dataclass(frozen=True)
class SearchRequest:
    """What was typed. plan: model, data, task and seeds. transfer_to: models that the prompts are carried to."""

    plan: Plan
    methods: tuple[str, ...]
    passes: int
    transfer_to: tuple[str, ...] = ()


def study(request: SearchRequest, folder: Path, say: Say, command: str = "") -> Json:
    """results.json, which is written to the folder with every prompt as an artifact in prompts/.

    What was found at a seed is kept as soon as it is: the same command goes on where it was stopped.

    Raises:
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
        return _held(request, chosen, folder, say, command)


def _held(request: SearchRequest, chosen: Sequence[Search], folder: Path, say: Say, command: str) -> Json:
    """Everything between the question and results.json, in a folder that this process holds alone."""
    config = _check_folder(request, folder)
    with machine.threads(request.plan.threads):
        finds_words = all(one.names_labels for one in chosen)
        bench, stand_in = open_unworded(request.plan) if finds_words else (open_bench(request.plan), False)
        check_answers(bench)
        source = Source(bench.task, stand_in)
        for target in request.transfer_to:
            load_model(target)  # a model that is not there is told before anything is searched
        bare = {} if stand_in else {request.plan.seeds[0]: stats_of(bench, "")}
        run_folder.sweep(folder, ())
        run_folder.write_config(folder, config)
        found: list[Json] = []
        for one in chosen:
            first = 1 + sum(saved(other["runs"]) for other in found)
            found.append(_search(bench, one, request, folder, first, say))
        if all(one["status"] == "refused" for one in found):
            raise UserError(f"every search was refused; {found[0]['name']}: {found[0]['reason']}")
        results = _facts(bench, request, command) | {
            "zero_shot": summary(bench, bare),
            "searches": [one | _against(bench, one, bare) for one in found],
            "transfer": [carried(request.plan, target, found, source, say) for target in request.transfer_to],
        }
        sealed_json.put(folder / "results.json", files.finite(results))
    return results


def _check_folder(request: SearchRequest, folder: Path) -> Json:
    """The question as it is kept in the folder. Raises UserError for one that holds something else."""
    config = plan_json(request.plan) | {"searches": list(request.methods), "passes": request.passes}
    config |= {"transfer_to": list(request.transfer_to), "version": run_folder.VERSION}
    others = [path for path in folder.iterdir() if not path.name.startswith(("LOCK", "config.json.tmp-"))]
    if others and not (folder / "config.json").exists():
        raise UserError(f"{folder} holds something that is no search. Name a new folder with --out.")
    if (folder / "report.html").exists() and run_folder.kept(folder, folder / "results.json") is not None:
        raise UserError(f"{folder} holds a search that is done: see {folder / 'report.html'}, or name a new folder.")
    run_folder.check_config(folder, config)
    return config


def _search(bench: Bench, one: Search, request: SearchRequest, folder: Path, first: int, say: Say) -> Json:
    """One search at every seed; refused where one of them is. first: the number of the first prompt that it keeps."""
    name = named(one)
    runs: list[Json] = []
    try:
        for seed in request.plan.seeds:
            place = first + saved(runs)
            kept = folder / "seeds" / f"{_identity(bench, one, request.passes, seed)}.json"
            before = run_folder.kept(folder, kept)
            if before is not None and _prompt_is_kept(before, folder):
                runs.append(before)
                say(f"{name}, seed {seed}: found before, dev {runs[-1]['found']['dev']:.3f}: {runs[-1]['shown']}")
                continue
            found = one.search(bench, request.passes, seed, _under(f"{name}, seed {seed}", say))
            runs.append(_run(bench, one, found, seed, folder / "prompts" / f"{name_of(type(one))}-{place}"))
            files.make_folder(kept.parent)
            sealed_json.put(kept, files.finite(runs[-1]))
            say(f"{name}, seed {seed}: {found.passes} passes, dev {found.dev:.3f}: {runs[-1]['shown']}")
    except UserError as problem:
        say(f"{name} is refused: {problem}")
        return {"name": name, "status": "refused", "reason": str(problem), "runs": runs}
    return {"name": name, "status": "done", "reason": "", "runs": runs}


def _identity(bench: Bench, one: Search, passes: int, seed: int) -> str:
    """Of all that a found prompt depends on: with other data or weights in the old places it is searched for anew."""
    asked = {"search": show(one), "seed": seed, "passes": passes, "task": bench.task.describe()}
    made_on = {"data": dict(bench.sha256), "base": bench.fingerprint, "device": bench.device.type}
    return run_folder.identity({**asked, **made_on, **asked_with(bench), "tunescope": __version__})


def named(one: Search) -> str:
    """The search as typed, but for the folders of a path in it: results are shared, paths are private."""
    return str(clean(show(one)))


def _under(name: str, say: Say) -> Say:
    return lambda line: say(f"  {name}: {line}")


def _prompt_is_kept(run: Json, folder: Path) -> bool:
    """Whether the prompt that a run names lies there whole; a run without one needs none."""
    if run["artifact"] is None:
        return True
    try:
        (prompt,) = load(folder / run["artifact"])
    except UserError:
        return False
    return bool(getattr(prompt.spec, "text", None) == run["found"]["text"])


def saved(runs: Sequence[Json]) -> int:
    """How many of them left a prompt in the folder."""
    return sum(one["artifact"] is not None for one in runs)


def _run(bench: Bench, one: Search, found: Found, seed: int, place: Path) -> Json:
    """What was found, its test rows, and where it lies."""
    own = with_found(bench, found)
    stats_found = stats_of(own, found.text)
    kept = {"found": asdict(found) | {"words": dict(found.words)}, "seed": seed, "stats": stats_found}
    kept |= {"test": scores.aggregate(own.task.metric, stats_found), "artifact": None, "arm": None}
    kept["shown"] = shown(found, bench.task)
    if found.text:
        about = {"search": named(one), "seed": seed, "dev": found.dev, "task": own.task.describe()}
        artifact = made(own, found.text)
        assert artifact is not None
        files.remove(place)  # a go that was killed had saved it, and kept no more
        save(place, artifact, model=bench.model, tokenizer=bench.tokenizer, about=about)
        kept |= {"artifact": f"prompts/{place.name}", "arm": shown_arm((Text(text=found.text),))}
    return kept


def shown(found: Found, task: Task) -> str:
    """The words in front, in quotes as JSON has them, so that no blank is lost; and the template and label words where
    they are not the task's, as they are typed."""
    parts = [json.dumps(found.text, ensure_ascii=False)] if found.text else []
    if found.template != getattr(task, "template", found.template):
        parts.append(f"--template {found.template!r}")
    if dict(found.words) != dict(getattr(task, "words", found.words)):
        parts.append("--words " + ",".join(f"{label}={word}" for label, word in found.words.items()))
    return " ".join(parts) or "nothing changed"


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
