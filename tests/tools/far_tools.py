"""A small comparison whose jobs go to other processes, and a queue that hands each to one: killed ones where asked."""

import warm

from tunescope.trial import plan, plan_check
from tunescope.trial.train.settings import Settings

DEBUG = "slurm:cluster=debug"
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
        self.killed = []

    def __call__(self, command):
        name = command[command.index("--job") + 1]
        if len(self.killed) < self.kills and (not self.killed or self.killed[0] == name):
            self.killed.append(name)
            done = warm.run(["-c", KILLED, self.phase, *command[4:]])
            assert done.returncode == -9, done.stderr
            return done.returncode
        return warm.run(["-m", "tunescope", *command[3:]]).returncode
