"""One job of a comparison by its id, in a process that finds all that it needs in the run's folder."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tunescope.comparison import arms, other_text, shared_passes
from tunescope.comparison.job import Job, job
from tunescope.comparison.progress import at_most_every
from tunescope.comparison.run import Report
from tunescope.errors import UserError
from tunescope.system import far_jobs, job_folder, run_folder
from tunescope.system.job_folder import JobFolder
from tunescope.trial import elsewhere
from tunescope.trial.arm import Ready
from tunescope.trial.bench import Bench
from tunescope.trial.input_hashes import check_worker, input_hashes
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import model_path
from tunescope.trial.plan_json import from_json
from tunescope.trial.train.loop import Progress

TOLD_EVERY = 2.0  # seconds


@dataclass
class Site:
    """What a worker holds from job to job: the model and the data, and the arms that it has made ready."""

    run: Path
    bench: Bench
    ready: dict[str, Ready] = field(default_factory=dict)


_site: Site | None = None


def begin(run: Path, token: str = "", share: float = 1.0) -> None:
    """Load what the run's config names, once. share: of the GPU's memory, which this process may take.

    Raises:
        UserError: the folder is not the one that is shared, or a file is no longer what the run was begun with.
    """
    global _site
    shared = job_folder.shared(run, token)
    plan = elsewhere.taken(from_json(run_folder.read_config(run), run / "config.json"), shared["model"], share)
    _site = Site(run, opened(plan, shared["read"]))


def opened(plan: Plan, read: Mapping[str, str]) -> Bench:
    """What the plan names. read: what the parent has read. Raises UserError where it is no longer the same."""
    bench = open_bench(plan)
    check_worker(bench, read, hashes(bench))
    bench.encoders |= {name: digest for what, digest in read.items() if (name := what.removeprefix("encoder.")) != what}
    return bench


def hashes(bench: Bench) -> dict[str, str]:
    """Of all that workers read for themselves; of other encoders when they are needed (`Bench.states`)."""
    text = other_text.windows(bench)
    return input_hashes(bench) | ({} if text is None else {"text.--forgetting": text.sha256})


def ask_of(todo: Job) -> dict[str, Any]:
    """The job in words, for ask.json; all else that its numbers depend on is in the run's config, and in its id."""
    told = {"arm": todo.arm.arm.name, "rates": list(todo.rates), "seed": todo.seed, "steps": todo.steps}
    return told | {"id": todo.id, "test": todo.test, "until": todo.until, "scored": todo.scored}


def do(name: str) -> str:
    """The job done, if nobody else is at it: "done", or "held" by another. What came of it lies in its folder."""
    assert _site is not None
    site, folder = _site, JobFolder(_site.run, name)

    def work(asked: dict[str, Any]) -> Mapping[str, Any]:
        todo = _job(site, asked)
        return shared_passes.run(site.bench, [todo], site.run, lambda _: _report(folder))[todo.id]

    return far_jobs.do(folder, work, lambda asked: f"{asked['arm']}, seed {asked['seed']}")


def _report(folder: JobFolder) -> Report:
    def told(progress: Progress) -> None:
        folder.put_progress(asdict(progress) | {"host": socket.gethostname()})

    return at_most_every(TOLD_EVERY, told)


def _job(site: Site, asked: Mapping[str, Any]) -> Job:
    """The job of that id. Raises UserError where what lies here makes another one of the same words."""
    if asked["arm"] not in site.ready:
        arm = next(one for one in arms.planned_arms(site.bench) if one.name == asked["arm"])
        site.ready[asked["arm"]] = arms.ready(arm, site.bench)
    ready = site.ready[asked["arm"]]
    made = job(site.bench, ready, tuple(asked["rates"]), asked["seed"], test=asked["test"], steps=asked["steps"])
    if made.id != asked["id"]:
        raise UserError(
            f"job {asked['id']} comes out as {made.id} on {socket.gethostname()}: another version of tunescope is "
            "installed there, or another device. Install the same on every machine."
        )
    return replace(made, until=asked["until"], scored=asked["scored"])


def share(run: Path, bench: Bench, executor: str) -> str:
    """Leave in the folder what workers need; the token, by which they know the folder again."""
    model = model_path(bench.plan.model)
    return job_folder.share(run, {"read": hashes(bench), "model": model, "executor": executor})
