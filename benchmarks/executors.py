"""One comparison on every executor, with workers and nodes killed in the middle: jobs, nodes, kills, equal numbers.

The numbers of one process are what all others are held against, to the last digit.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.models import Scale
from tunescope.comparison.comparison import ask
from tunescope.lab.demo import prepare
from tunescope.system.far_jobs import Submitted
from tunescope.trial.plan import Plan
from tunescope.trial.train.settings import Settings

CLOCKED = {"created", "seconds", "memory_mb"}
STEPS = {"full": 40, "tiny": 4}
PAUSE = 20.0  # seconds before the command is typed again
ROWS = {"full": 96, "tiny": 8}


def run(scale: Scale) -> Result:
    rows: list[dict[str, Any]] = []
    if scale.name != "tiny" and (reason := skipped()):
        return Result(skipped=reason)
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        asked = question(Path(name), STEPS[scale.name], ROWS[scale.name])
        want = numbers(row(rows, asked, Path(name), "local", workers=1))
        kinds = _tiny() if scale.name == "tiny" else _full()
        for executor, options in kinds:
            found = row(rows, asked, Path(name), executor, **options)
            rows[-1]["equal"] = numbers(found) == want
    different = sum(not one.get("equal", True) for one in rows)
    missed = sum(one["kills"] < one.pop("to_kill") for one in rows)
    checks = [Check("executors with another number than one process", different, 0)]
    checks += [Check("kills that came too late", missed, 0)]
    return Result((), checks, {"steps": STEPS[scale.name], "rows": rows})


def _tiny() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "local", {"workers": 1}


def _full() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every executor, with workers killed that train, and of Ray a whole node."""
    for kills in (0, 1):
        yield "local", {"workers": 2, "kills": kills}
    yield "slurm:cluster=local", {"workers": 0, "kills": 2}
    yield "ray", {"workers": 0, "nodes": 2, "kills": 1}
    yield "ray", {"workers": 0, "nodes": 2, "kills": 1, "whole_node": True}


def question(folder: Path, steps: int, rows: int) -> Plan:
    """Three arms, two rates and two seeds on the demo's model."""
    setup = prepare(folder)
    data = {}
    for part in ("train", "dev", "test"):
        lines = (folder / f"descending.{part}.jsonl").read_text().splitlines(keepends=True)
        data[part] = str(folder / f"cut.{part}.jsonl")
        Path(data[part]).write_text("".join(lines[: rows if part == "train" else min(rows, 64)]))
    task = {"kind": "generation", "template": "{input}", "target": "target"}
    settings = Settings(steps=steps, batch_size=16, eval_every=max(1, steps // 4))
    return Plan(
        model=str(setup.model),
        data=data,
        task=task | _fields(data["train"]),
        arms=("zero-shot", "prefix:length=4", "lora:rank=2"),
        trials=2,
        seeds=(0, 1),
        beyond=0,
        settings=settings,
    )


def _fields(path: str) -> dict[str, str]:
    first, second = json.loads(Path(path).read_text().partition("\n")[0])
    return {"template": f"{{{first}}}", "target": second}


def numbers(results: Any) -> Any:
    """results.json without what a clock or a meter read."""
    if isinstance(results, dict):
        return {key: numbers(value) for key, value in results.items() if key not in CLOCKED}
    return [numbers(value) for value in results] if isinstance(results, list) else results


def row(rows: list[dict[str, Any]], asked: Plan, folder: Path, executor: str, **options: Any) -> dict[str, Any]:
    """The results, and a row on how they came about."""
    run, kills = folder / f"run-{len(rows)}", options.get("kills", 0)
    start = time.monotonic()
    with _nodes(options.get("nodes", 0)) as nodes, _killed(run, kills, nodes, options) as killed:
        results, goes = _asked(asked, run, executor, options["workers"])
    told = {"executor": executor, "nodes": max(1, len(nodes)), "workers": options["workers"], "goes": goes}
    told |= {"jobs": len(list(run.glob("arms/*"))), "to_kill": kills, "kills": len(killed)}
    told |= {"killed": "node" if options.get("whole_node") else "worker", "seconds": round(time.monotonic() - start)}
    rows.append(told)
    print(told, flush=True)
    return results


def _asked(asked: Plan, run: Path, executor: str, workers: int) -> tuple[dict[str, Any], int]:
    """The results, and how often the command was typed: a queue is not waited for."""
    for go in range(1, 1000):
        try:
            return dict(ask(asked, run, executor=executor, workers=workers, quiet=True).results), go
        except Submitted:
            time.sleep(PAUSE)
    raise AssertionError("not done")


@contextmanager
def _nodes(count: int) -> Iterator[list[Any]]:
    """The nodes of a Ray cluster on this machine, of one core each; none are begun for 0."""
    if not count:
        yield []
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    has = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**has, "include_dashboard": False})
    nodes = [cluster.head_node, *(cluster.add_node(**has) for _ in range(count - 1))]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        yield nodes
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def _killed(run: Path, kills: int, nodes: list[Any], options: dict[str, Any]) -> Iterator[list[int]]:
    """Kill so many workers that train, each at another job; or of the last node the raylet, and with it its worker."""
    over, killed = threading.Event(), list[int]()

    def watch() -> None:
        seen = set[str]()
        while not over.wait(0.02) and len(killed) < kills:
            for job, pid in _training(run):
                if job not in seen and len(killed) < kills and _kill(pid, nodes if options.get("whole_node") else []):
                    seen.add(job)
                    killed.append(pid)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield killed
    finally:
        over.set()
        watching.join()


def _training(run: Path) -> list[tuple[str, int]]:
    """(job, process) of every run that is half done, whose folder is named after both."""
    found = [(path.name.partition(".")[0], int(path.name.rpartition("-")[2])) for path in run.glob("arms/*.tmp-*-*")]
    return [(job, pid) for job, pid in found if pid != os.getpid() and psutil.pid_exists(pid)]


def _kill(pid: int, nodes: list[Any]) -> bool:
    """Kill the process; or its node with it, if that is not the head. False where nothing was killed."""
    try:
        process = psutil.Process(pid)
        doomed = [process]
        if nodes:
            raylets = {one.pid: one for one in process.parents() if one.name() == "raylet"}
            last = [info.process.pid for info in nodes[-1].all_processes["raylet"]]
            doomed = [raylets[one] for one in last if one in raylets] + [process] if raylets.keys() & set(last) else []
        for one in doomed:
            one.kill()
        return bool(doomed)
    except psutil.Error:
        return False


def skipped() -> str | None:
    """Why the whole cannot run here."""
    missing = [name for name in ("ray", "submitit") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: pip install 'tunescope[ray,slurm]'" if missing else None
