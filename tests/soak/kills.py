"""Commands that are killed at random moments, mostly just after a file changed, and then typed again.

What is typed again ends with the numbers and the files of a command that nothing befell; no process outlives the one
that began it, nothing half done is left behind, and what is said is no traceback.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import small_run
import tinyrun
import warm

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "tests" / "reproduce" / "toy_command.py"
WAYS = ("group", "worker", "parent", "term", "int twice", "stop")
CODES = {"group": (-9,), "parent": (-9,), "term": (143, -15), "int twice": (130,), "worker": (0,), "stop": (0,)}
NEAR = 0.8  # of the moments are just after a file changed
KILLS = 200
NEW = 0.02  # seconds behind a change
PATIENCE = 120.0
COMMANDS = ("compare", "reproduce", "search", "anchors")


class Command:
    """What is typed, in a folder of its own every time; `truth` is of one that nothing befell, and how it went."""

    def __init__(self, name, folder, material):
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        model, data = material
        rows = [model, data["train"], "--test", data["test"]]
        brief = ["--steps", "30", "--eval-every", "10", "--seeds", "1", "--trials", "2", "--beyond", "0"]
        words = {
            "compare": [*rows, "--dev", data["dev"], "--arms", "demos:k=1", "lora:rank=2", *brief, "--workers", "2"],
            "reproduce": ["toy-recipe", "--seeds", "3", "--workers", "2"],
            "search": [*rows, "--dev", data["dev"], "--passes", "330", "--seeds", "0", "1"],
            "anchors": [*rows, "--rows", "4", "--seeds", "1", "--only", "flow"],
        }[name]
        words += ["--method", "random:length=2", "pez:length=2,batch=4"] if name == "search" else []
        self.words = [TOY, name, *words] if name == "reproduce" else ["-m", "tunescope", name, *words]
        begun = time.monotonic()
        process, changes = self.start("truth"), 0
        seen = State(self.folder / "truth")
        while process.poll() is None:
            changes += seen.is_new()
            time.sleep(0.002)
        assert self.ended(process)[0] == 0, self.ended(process)
        self.seconds, self.changes = time.monotonic() - begun, max(changes, 1)
        self.truth = self.found("truth")

    def start(self, name):
        env = {"TOY": str(self.folder), "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        return warm.start([*self.words, "--out", self.folder / name], env=env, cwd=self.folder, spares=4)

    def ended(self, process):
        """(exit code, what it said on stderr)"""
        _, err = process.communicate(timeout=PATIENCE)
        return process.returncode, err

    def found(self, name):
        """The numbers that the folder holds, and the names in it."""
        folder = self.folder / name
        pages = [path for path in sorted(folder.glob("*.json")) if path.name != "config.json"]
        told = {path.name: small_run.numbers(json.loads(path.read_text())) for path in pages}
        return json.loads(json.dumps(told).replace(f'"{name}"', '"run"')), small_run.names(folder)


class State:
    """What lies in a folder: `is_new` where it is not what it was when it was last asked."""

    def __init__(self, folder):
        self.folder, self.known = folder, None

    def is_new(self):
        now = set()
        for place, _, files in os.walk(self.folder):
            for name in files:
                with suppress(OSError):
                    found = os.stat(os.path.join(place, name))
                    now.add((place, name, found.st_mtime_ns, found.st_size))
        before, self.known = self.known, now
        return before is not None and before != now


def killed(command, name, way, draw):
    """(whether it came in time, exit code, what was said, processes that were left)"""
    process = command.start(name)
    wait_for_moment(command, process, State(command.folder / name), draw)
    if process.poll() is not None:
        return False, *command.ended(process), []
    family = around(process.pid)
    if way == "worker":
        while not (family := at_work(command, name, around(process.pid))) and process.poll() is None:
            time.sleep(0.001)
        if not family:
            return False, *command.ended(process), []
    send(process.pid, way, family, draw)
    code, err = command.ended(process)
    return True, code, err, outliving(family)


def wait_for_moment(command, process, state, draw):
    wanted, is_near = draw.randrange(1, command.changes + 1), draw.random() < NEAR
    until = time.monotonic() + (PATIENCE if is_near else draw.uniform(0, command.seconds))
    while process.poll() is None and wanted and time.monotonic() < until:
        wanted -= is_near and state.is_new()
        time.sleep(0.001)
    if is_near:
        time.sleep(draw.uniform(0, NEW))


def around(pid):
    """The processes that it has begun."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def at_work(command, name, family):
    """Those of them that have a piece: what is half done is named for who does it."""
    pids = {path.name.rpartition("-")[2] for path in (command.folder / name).glob("arms/*.tmp-*")}
    pids |= {pid for path in command.folder.glob("*.pids") for pid in path.read_text().split()}
    return [one for one in family if str(one.pid) in pids]


def send(pid, way, family, draw):
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        if way == "group":
            for one in (psutil.Process(pid), *family):
                one.suspend()
            for one in (*family, psutil.Process(pid)):
                one.kill()
        elif way == "worker":
            draw.choice(family).kill()
        elif way == "stop":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(draw.uniform(0, 0.3))
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, {"parent": signal.SIGKILL, "term": signal.SIGTERM, "int twice": signal.SIGINT}[way])
            if way == "int twice":
                time.sleep(draw.uniform(0, 0.1))
                os.kill(pid, signal.SIGINT)


def outliving(family, seconds=10.0):
    """Those that live so long after the one that began them."""
    _, alive = psutil.wait_procs(family, timeout=seconds)
    alive = [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    for one in alive:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    return alive


def tried(command, name, way, draw):
    """(whether the kill came in time, what is wrong with what came of it: "" where nothing is)"""
    in_time, code, err, left = killed(command, name, way, draw)
    told = []
    if in_time and code not in (*CODES[way], 0):
        told.append(f"exit code {code}: {err[-300:]}")
    if is_traceback(err, way):
        told.append(f"a traceback: {err[-600:]}")
    if left:
        told.append(f"{len(left)} processes outlive it")
    code, err = command.ended(command.start(name))
    if code and "holds a search that is done" not in err:
        told.append(f"cannot be gone on with: {err[-300:]}")
    elif command.found(name) != command.truth:
        told.append(f"differs: {differing(command, name)}")
    if not told:
        shutil.rmtree(command.folder / name)
    return in_time, "; ".join(told)


def is_traceback(err, way):
    """Whether a process that runs our code says one.

    Where its parent is killed outright, a process that Python has not yet told what to do says EOFError, before a line
    of ours could run in it.
    """
    begun = err.count("pickle.load(from_parent)") if way == "parent" else 0
    return err.count("Traceback") > begun


def differing(command, name):
    numbers, names = command.found(name)
    other = set(names) ^ set(command.truth[1])
    return sorted(other)[:4] or [key for key in numbers if numbers[key] != command.truth[0].get(key)]


def run(folder, seed, count, commands=COMMANDS):
    """The figures. count: of tries; 0 is KILLS."""
    sys.path.insert(0, str(ROOT / "tests" / "tools"))
    material = tinyrun.write(folder)
    known = {name: Command(name, folder, material) for name in commands}
    came, faults = Counter(), []
    for index in range(count or KILLS):
        draw = random.Random(1000 * seed + index)
        command, way = known[commands[index % len(commands)]], WAYS[index // len(commands) % len(WAYS)]
        in_time, told = tried(command, f"run-{index}", way, draw)
        came[f"{command.name}, {way}" if in_time else "came too late"] += 1
        if told:
            faults.append(f"{index}, {command.name}, {way}: {told}")
    return {"tries": count or KILLS, "kills": dict(sorted(came.items())), "faults": faults}
