"""What every executor keeps to, with a made-up job: the oracle is what the job's own arithmetic gives here."""

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made_jobs
import pytest
from made_jobs import digest, do, start

from tunescope.errors import UserError
from tunescope.system.executor import Event, Executor, Needs, Work
from tunescope.system.executors.ray import Ray
from tunescope.system.executors.slurm import Slurm
from tunescope.trial import executor_name

NAMES = ("local", "ray", "slurm:cluster=local", "slurm:cluster=debug")
WAITING = ("local", "ray")
ALIKE = ("local", pytest.param("ray", marks=pytest.mark.slow))  # a fresh pool of ray takes many seconds to begin
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(Path(made_jobs.__file__).parent), prepend=os.pathsep)  # it is imported there
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80_000_000, configure_logging=False)
        yield
        ray.shutdown()


@pytest.fixture
def begun(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    made: list[Executor] = []

    def begin(name: str, slots: int = 2, **given: Any) -> Executor:
        if name.startswith("ray"):
            request.getfixturevalue("cluster")
        if name.startswith("slurm"):
            pytest.importorskip("submitit")
        executor = executor_name.parse(name)
        preload = "tunescope.system.crew"
        work = Work(tmp_path, partial(start, **given), (tmp_path,), do, preload, command=partial(command, tmp_path))
        executor.begin(work, slots, Needs())
        made.append(executor)
        return executor

    yield begin
    for executor in made:
        executor.close()
        for handle in getattr(executor, "handed", ()):
            if getattr(handle, "_process", None):
                handle._process.wait(60)


def command(folder: Path, job: str) -> list[str]:
    return [sys.executable, made_jobs.__file__, str(folder), job]


def drive(executor: Executor, jobs: list[str], folder: Path) -> list[Event]:
    """What happens until every job has ended, or died as often as it may; of a queue until its files are there."""
    executor.submit(jobs)
    left, events, last = set(jobs), [], time.monotonic() + 90
    while left and time.monotonic() < last:
        for event in executor.poll():
            events.append(event)
            if event.kind in ("ended", "died"):
                left.discard(event.job)
        if not executor.waits:
            left = {job for job in left if not (folder / f"{job}.txt").exists()}
            time.sleep(0.1)
    assert not left
    return events


@pytest.mark.parametrize("name", NAMES)
def test_every_job_is_done_once(name: str, begun: Any, tmp_path: Path) -> None:
    jobs = ["one", "two", "three"]
    executor = begun(name)
    events = drive(executor, jobs, tmp_path)
    for job in jobs:
        assert (tmp_path / f"{job}.txt").read_text() == digest(job)
        assert len((tmp_path / f"{job}.pids").read_text().split()) == 1
        if executor.waits:
            assert [one.kind for one in events if one.job == job and one.kind != "progress"] == ["started", "ended"]
            assert digest(job) in [one.value for one in events if one.job == job]


@pytest.mark.parametrize("name", ALIKE)
def test_as_many_as_there_are_slots_are_at_work_at_once(name: str, begun: Any, tmp_path: Path) -> None:
    executor = begun(name)
    drive(executor, ["meets-a", "meets-b"], tmp_path)
    assert executor.capacity() == 2


@pytest.mark.parametrize("name", WAITING)
def test_a_killed_job_is_told_costs_itself_alone_and_may_be_handed_in_again(
    name: str, begun: Any, tmp_path: Path
) -> None:
    executor = begun(name)
    events = drive(executor, ["dies-1", "other", "another"], tmp_path)
    assert {one.job: one.kind for one in events} == {"dies-1": "died", "other": "ended", "another": "ended"}
    assert [one.kind for one in drive(executor, ["dies-1"], tmp_path)][-1] == "ended"
    assert len((tmp_path / "other.pids").read_text().split()) == 1


@pytest.mark.parametrize("name", ALIKE)
def test_a_slot_that_cannot_begin_ends_it_with_its_own_words(name: str, begun: Any, tmp_path: Path) -> None:
    executor = begun(name, refuses="rows.jsonl was changed")
    with pytest.raises(UserError, match=r"^rows.jsonl was changed$"):
        drive(executor, ["one"], tmp_path)


@pytest.mark.parametrize("name", ALIKE)
def test_no_process_is_left_when_it_is_closed(name: str, begun: Any, tmp_path: Path) -> None:
    executor = begun(name)
    drive(executor, ["one"], tmp_path)
    (pid,) = (tmp_path / "one.pids").read_text().split()
    executor.close()
    last = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < last:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_what_is_typed_is_the_constructor_call_and_a_wrong_name_says_what_there_is() -> None:
    assert executor_name.show(executor_name.parse("ray:address=auto,gpus=0.25")) == "ray:address=auto,gpus=0.25"
    assert executor_name.parse("ray:gpus=0.25").with_needs(Needs(4, 1.0)) == Needs(4, 0.25)
    with pytest.raises(UserError, match=r"no executor 'rya'. Did you mean 'ray'\? Executors: local, ray, slurm"):
        executor_name.parse("rya")
    with pytest.raises(UserError, match=r"'slurm' has no field 'queue'.*Its fields: partition, account, minutes"):
        executor_name.parse("slurm:queue=gpu")


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_without_its_package_the_line_says_what_to_install(
    name: str, package: str, begun: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    work = Work(tmp_path, start, (tmp_path,), do, "tunescope.system.crew")
    with pytest.raises(UserError, match=rf"--executor {name} needs .*pip install 'tunescope\[{name}\]'"):
        executor_name.parse(name).begin(work, 1, Needs())


def test_a_job_that_the_accounting_does_not_know_is_asked_of_the_queue(tmp_path, monkeypatch):
    queue = Slurm()
    queue.begin(Work(tmp_path, print, (), str, ""), 0, Needs(1, 0.5))
    assert queue._asked_for()["gpus_per_node"] == 1  # whole ones, as Slurm has them
    monkeypatch.setattr("submitit.SlurmJob.state", property(lambda self: "UNKNOWN"))
    known = tmp_path / "squeue"
    said = "*=7) echo PENDING;; *=8) ;; *) echo Invalid job id specified >&2; exit 1;;"
    known.write_text(f"#!/bin/sh\ncase $* in {said} esac\n")
    known.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert [queue._waits("slurm", job) for job in ("7", "8", "9")] == [True, False, False]
    known.write_text("#!/bin/sh\necho no answer >&2; exit 1\n")
    assert queue._waits("slurm", "9")  # nothing is known, so nothing is handed in twice


def test_a_cluster_without_room_for_a_job_is_waited_for_and_told_of_once(monkeypatch, capsys):
    waited = []
    monkeypatch.setattr("tunescope.system.executors.ray.time.sleep", waited.append)
    nodes = [{"Alive": True, "Resources": {"CPU": 4.0}}]
    cluster = SimpleNamespace(is_initialized=lambda: True, nodes=lambda: nodes)
    monkeypatch.setattr("tunescope.system.executors.ray.imported", lambda: cluster)
    executor = Ray(address="auto")
    executor.begin(Work(Path(), print, (), str, ""), 0, Needs(8))
    executor.submit(["one"])
    assert [list(executor.poll()) for _ in range(3)] == [[], [], []] and waited == [0.5] * 3
    told = capsys.readouterr().out
    assert told.count("has room for a job: 8 CPUs") == 1 and "--executor ray:address=auto,cpus=N" in told
