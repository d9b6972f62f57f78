"""Slots on the machines of a Ray cluster, one process each, which hold the model from job to job."""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system.executor import Event, Executor, Needs, Work
from tunescope.system.say import say

OBJECTS = 80_000_000  # bytes of Ray's own store, in which nothing of ours lies
BEGUN = 3  # slots that may die one after another while they begin
LONGEST = 40  # letters of a folder for temporary files: Ray's sockets lie deep in it, and their paths end at 107


class Slot:
    """One process of the cluster."""

    def begin(self, start: Callable[..., None], given: tuple[Any, ...]) -> None:
        start(*given)

    def do(self, do: Callable[[Any], Any], job: object) -> Any:
        return do(job)


@dataclass
class Ray(Executor):
    """Slots on the machines of a Ray cluster, one process each, which hold the model from job to job.

    address: of the cluster, as `ray.init` takes it (auto: the one that this machine is in); "" begins one here that
    ends with the run. cpus, gpus, memory (GB): of a slot, in the place of what a job needs; gpus=0.25 is four slots a
    GPU, and each may then take a quarter of its memory.
    """

    address: str = ""
    cpus: int | None = None
    gpus: float | None = None
    memory: float | None = None

    def begin(self, work: Work, slots: int, needs: Needs) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray = imported()
        self.work, self.slots, self.needs = work, slots, needs
        self.left: deque[str] = deque()
        self.team: dict[Any, str | None] = {}  # slot -> its job, None of an idle one, "" of one that loads the model
        self.asked: dict[Any, Any] = {}  # what is awaited -> slot
        self.unready, self.began, self.told = 0, False, False
        if ray.is_initialized():
            return
        quiet = {"log_to_driver": False, "configure_logging": False}
        own = {"include_dashboard": False, "object_store_memory": OBJECTS, **_place()}
        try:
            ray.init(address=self.address or "local", **quiet, **({} if self.address else own))
        except (ConnectionError, ValueError) as problem:
            first = str(problem).partition("\n")[0]
            raise UserError(f"--executor ray:address={self.address} finds no cluster there ({first}).") from None
        self.began = True

    def with_needs(self, needs: Needs) -> Needs:
        typed = {"cpus": self.cpus, "gpus": self.gpus, "memory": self.memory}
        return replace(needs, **{name: value for name, value in typed.items() if value is not None})  # type: ignore[arg-type]

    def capacity(self) -> int:
        wanted = {"CPU": self.needs.cpus, "GPU": self.needs.gpus, "memory": self.needs.memory * 1e9}
        nodes = [node["Resources"] for node in imported().nodes() if node["Alive"]]
        each = [min(int(has.get(what, 0) / much) for what, much in wanted.items() if much) for has in nodes]
        return min(sum(each), self.slots or sum(each))

    def submit(self, jobs: Sequence[str]) -> None:
        self.left.extend(jobs)

    def poll(self) -> Iterator[Event]:
        """As `Executor.poll`. A slot that is gone takes its job with it, and another is begun where there is room."""
        ray = imported()
        self._fill()
        if not self.asked:
            self._no_room()
        done, _ = ray.wait(list(self.asked), num_returns=1, timeout=0.5) if self.asked else ([], [])
        for ref in done:
            slot = self.asked.pop(ref)
            job = self.team[slot]
            try:
                value = ray.get(ref)
            except ray.exceptions.RayTaskError as problem:
                raise problem.cause from None
            except ray.exceptions.RayActorError as problem:
                yield from self._lost(slot, job, problem)
                continue
            self.team[slot], self.unready = None, 0
            if job:
                yield Event(job, "ended", value)
        yield from self._handed_out()

    def close(self) -> None:
        if not imported().is_initialized():
            return
        for slot in self.team:
            imported().kill(slot)
        self.team.clear()
        self.asked.clear()
        if self.began:
            imported().shutdown()

    def _fill(self) -> None:
        """As many slots as there is room and work for; each begins at once."""
        waiting = len(self.left) + sum(job is not None for job in self.team.values())
        for _ in range(min(self.capacity(), waiting) - len(self.team)):
            takes = {
                "num_cpus": self.needs.cpus,
                "num_gpus": self.needs.gpus,
                "memory": self.needs.memory * 1e9 or None,
            }
            made = imported().remote(Slot).options(max_restarts=0, max_task_retries=0, **takes).remote()
            self.team[made] = ""
            self.asked[made.begin.remote(self.work.start, self.work.given)] = made

    def _no_room(self) -> None:
        """Wait for a machine that a job fits on, which a cluster that grows may add; told once."""
        if self.left and not any(job is None for job in self.team.values()):
            if not self.told:
                needs, address = self.needs, f"address={self.address}," if self.address else ""
                say(
                    f"No machine of the Ray cluster has room for a job: {needs.cpus} CPUs, {needs.gpus:g} GPUs, "
                    f"{needs.memory:.1f} GB. It is waited for; to ask for less, stop and type --executor "
                    f"ray:{address}cpus=N,gpus=N,memory=GB"
                )
            self.told = True
            time.sleep(0.5)

    def _handed_out(self) -> Iterator[Event]:
        for slot, job in self.team.items():
            if job is None and self.left:
                self.team[slot] = self.left.popleft()
                self.asked[slot.do.remote(self.work.do, self.work.payload(str(self.team[slot])))] = slot
                yield Event(str(self.team[slot]), "started")

    def _lost(self, slot: Any, job: str | None, problem: Exception) -> Iterator[Event]:
        """A slot that is gone, or out of reach, is never asked again; Ray tries nothing a second time for us."""
        imported().kill(slot)
        del self.team[slot]
        told = " ".join(str(problem).split())[:200]
        if job:
            yield Event(job, "died", told)
            return
        self.unready += 1
        if self.unready >= BEGUN:
            raise UserError(
                f"--executor ray: {BEGUN} processes of the cluster died while they loaded the model ({told})."
            )


def imported() -> Any:
    """Ray, where it is installed."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise UserError("--executor ray needs Ray, which is not here; type: pip install 'tunescope[ray]'") from None
    return ray


def _place() -> dict[str, str]:
    """Where Ray's sockets are, if the usual folder for temporary files has too long a name for them."""
    usual = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return {"_temp_dir": "/tmp/ray"} if len(usual) > LONGEST and Path("/tmp").is_dir() else {}
