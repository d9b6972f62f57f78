"""Jobs of a Slurm cluster, handed in as an array by submitit; `tunescope resume RUN` looks for what came of them."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tunescope.errors import UserError
from tunescope.system import files
from tunescope.system.executor import Event, Executor, Needs, Work
from tunescope.system.job_folder import JobFolder

WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING", "RUNNING", "SUSPENDED")


@dataclass
class Slurm(Executor):
    """Jobs of a Slurm cluster, handed in as an array by submitit; `tunescope resume RUN` looks for what came of them.

    partition, account: of the cluster. minutes: that a job may take; one that is cut off goes on from its last saved
    state. cpus, gpus, memory (GB): of a job, in the place of what it needs. cluster: slurm; local runs the jobs as
    processes of this machine, debug one by one in this one.
    """

    partition: str = ""
    account: str = ""
    minutes: int = 240
    cpus: int | None = None
    gpus: int | None = None
    memory: float | None = None
    cluster: str = "slurm"

    waits: ClassVar[bool] = False

    def begin(self, work: Work, slots: int, needs: Needs) -> None:
        imported()
        self.work, self.slots, self.needs = work, slots, needs
        self.handed: list[Any] = []  # what submitit gave for what it was handed

    def with_needs(self, needs: Needs) -> Needs:
        typed = {"cpus": self.cpus, "gpus": self.gpus, "memory": self.memory}
        return replace(needs, **{name: value for name, value in typed.items() if value is not None})  # type: ignore[arg-type]

    def capacity(self) -> int:
        return self.slots or 1

    def submit(self, jobs: Sequence[str]) -> None:
        """Raises UserError where the cluster does not take them."""
        submitit = imported()
        try:
            queue = submitit.AutoExecutor(folder=self.work.folder / "slurm", cluster=self.cluster)
            queue.update_parameters(**self._asked_for())
            made = queue.map_array(called, [self.work.command(job) for job in jobs])
        except (RuntimeError, OSError, submitit.core.utils.FailedJobError) as problem:
            raise UserError(
                f"--executor slurm: the jobs were not taken ({' '.join(str(problem).split())})."
            ) from problem
        self.handed += made
        for job, handle in zip(jobs, made, strict=True):
            folder = JobFolder(self.work.folder, job)
            files.make_folder(folder.path)
            files.put_json(folder.queue_note, {"cluster": self.cluster, "job": handle.job_id})
        if self.cluster == "debug":
            for handle in made:
                handle.results()

    def poll(self) -> Iterator[Event]:
        return iter(())

    def close(self) -> None:
        """Nothing: what was handed in goes on without this process."""

    def queued(self, jobs: Sequence[str]) -> set[str]:
        """As `Executor.queued`, by what the cluster says; it is asked of jobs alone that nobody has a lease of."""
        notes = {job: JobFolder(self.work.folder, job).queue_note for job in jobs}
        return {job for job, note in notes.items() if note.exists() and self._waits(**files.read_json(note))}

    def _waits(self, cluster: str, job: str) -> bool:
        if cluster == "local":
            return _is_process(int(job))
        if cluster != "slurm":
            return False
        state = str(imported().SlurmJob(self.work.folder / "slurm", job).state)
        return _is_queued(job) if state == "UNKNOWN" else state.partition(" ")[0] in WAITING

    def _asked_for(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"timeout_min": self.minutes, "cpus_per_task": self.needs.cpus}
        asked |= {"gpus_per_node": math.ceil(self.needs.gpus)} if self.needs.gpus else {}
        asked |= {"mem_gb": self.needs.memory} if self.needs.memory else {}
        own = {"partition": self.partition, "account": self.account, "array_parallelism": self.slots or 256}
        return asked | {f"slurm_{name}": value for name, value in own.items() if value} | {"name": "tunescope"}


def called(command: Sequence[str]) -> int:
    """On the node: the job as a process of its own, whose result lies in its folder and not in submitit's."""
    return subprocess.run(list(command), check=False).returncode


def _is_queued(job: str) -> bool:
    """What the queue says of a job that the accounting does not know, or not yet; where it says nothing, that it is."""
    asked = ["squeue", "--noheader", "--format=%T", f"--jobs={job}"]
    try:
        found = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return True
    if found.returncode:
        return "Invalid job id" not in found.stderr
    return bool(found.stdout.strip())


def _is_process(pid: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def imported() -> Any:
    """submitit, where it is installed."""
    try:
        import submitit
    except ImportError:
        raise UserError(
            "--executor slurm needs submitit, which is not here; type: pip install 'tunescope[slurm]'"
        ) from None
    return submitit
