"""A small comparison whose jobs go to other processes, and a queue that hands each to one: killed ones where asked."""

import time

import pytest
import warm

from tunescope.system.far_jobs import Submitted
from tunescope.trial import plan, plan_check
from tunescope.trial.train.settings import Settings

DEBUG = "slurm:cluster=debug"
NAMES = ("local", *(pytest.param(name, marks=pytest.mark.slow) for name in (DEBUG, "ray")))
NAMES += (pytest.param("slurm:cluster=local", marks=pytest.mark.slow),)
NEEDS = {"ray": "ray", "slurm": "submitit"}
CLOCKED = {"created", "seconds", "memory_mb"}
PHASES = ("loads", "trains", "saves", "keeps", "tells", "ends")

# What is killed where, before the line runs.
KILLED = """
import os, signal, sys
from pathlib import Path
from tunescope.comparison import far_worker, run
from tunescope.system import files, job_folder, run_folder
from tunescope.trial.train import loop
phase, words = sys.argv[1], sys.argv[2:]
def dies(*given, **named):
    os.kill(os.getpid(), signal.SIGKILL)
def third(plain):
    left = [3]
    def counted(*given, **named):
        left[0] -= 1
        return plain(*given, **named) if left[0] else dies()
    return counted
run.SAVE_EVERY = 0.0
if phase == "loads":
    far_worker.opened = dies
if phase == "trains":
    loop.update = third(loop.update)
if phase == "saves":
    files.replace_folder = dies
if phase == "keeps":
    plain = run_folder.finish
    run_folder.finish = lambda *given: (plain(*given), dies())
if phase == "tells":
    job_folder.JobFolder.put_outcome = dies
if phase == "ends":
    plain = job_folder.JobFolder.put_outcome
    job_folder.JobFolder.put_outcome = lambda *given: (plain(*given), dies())
far_worker.begin(Path(words[0]), words[words.index("--token") + 1])
far_worker.do(words[words.index("--job") + 1])
"""

# What is killed, or refuses, in a worker of a search or of a study of demonstrations.
PIECES = """
import os, signal, sys
from tunescope.cli.app import main
from tunescope.errors import UserError
from tunescope.probes.demonstrations import flow
from tunescope.search.methods.random import RandomPrompts
phase, sys.argv[1:] = sys.argv[1], sys.argv[2:]
def refuses(round):
    raise UserError("it flows nowhere")
if phase == "search":
    RandomPrompts.search = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
if phase == "refuses":
    flow.measure = refuses
main()
"""


def question(material, *arms, steps=6, **changes):
    model, data = material
    fields = {"task": {"kind": "classification"}, "arms": arms, "budgets": (256,), "seeds": (0,), "trials": 2}
    settings = Settings(steps=steps, batch_size=8, eval_every=max(1, steps // 3))
    return plan_check.check(plan.Plan(model=model, data=data, beyond=0, settings=settings, **(fields | changes)))


def numbers(results):
    """results.json without what a clock or a meter read."""
    if isinstance(results, dict):
        return {key: numbers(value) for key, value in results.items() if key not in CLOCKED}
    return [numbers(value) for value in results] if isinstance(results, list) else results


class Queue:
    """What a node does with a job's command: a process that is killed at a phase, so many times, or runs it."""

    def __init__(self, phase="", kills=0):
        self.phase, self.kills = phase, kills
        self.killed, self.begun = [], []

    def __call__(self, command):
        name = command[command.index("--job") + 1]
        self.begun.append(name)
        if self.phase == "refuses":
            return warm.run(["-c", PIECES, self.phase, *command[3:]]).returncode
        if len(self.killed) < self.kills and (not self.killed or self.killed[0] == name):
            self.killed.append(name)
            words = [PIECES, self.phase, *command[3:]] if self.phase == "search" else [KILLED, self.phase, *command[4:]]
            done = warm.run(["-c", *words])
            assert done.returncode == -9, done.stderr
            return done.returncode
        return warm.run(["-m", "tunescope", *command[3:]]).returncode


def gone_on(go, run, outcomes=0, most=8):
    """What `go` returns, and how often it was called: a queue is not waited for.

    outcomes: so many lie in the run's jobs when a queue that works by itself is through.
    """
    for count in range(1, most + 1):
        try:
            return go(), count
        except Submitted:
            last = time.monotonic() + 60
            while time.monotonic() < last and len([*run.glob("jobs/*/outcome-*.json")]) < outcomes:
                time.sleep(0.2)
    raise AssertionError(f"not done in {most} goes")
