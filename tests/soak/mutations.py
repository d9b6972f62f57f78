"""Mutations of what is read: data, artifacts, results, checkpoints, folders of peft and of adapters.

Each is read as a user's command reads it. A fault is an exception that is no UserError, a message that is no line, a
reading of more than LIMIT seconds, anything unpickled, run or fetched, and what was taken though it is damaged.
"""

import contextlib
import json
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import targets

from tunescope.errors import UserError
from tunescope.system.say import shown

LIMIT = 10.0  # seconds
COUNT = 10_000
SHARES = {
    "data": 0.3,
    "artifact": 0.2,
    "artifact with a digest that holds": 0.1,
    "results": 0.1,
    "checkpoint": 0.1,
    "peft": 0.1,
    "adapters": 0.1,
}
RAN = ("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")
SEEN = []
WATCHED = [False]
HOOKED = []


def run(folder, seed, count):
    """The figures: of each kind of file how many were refused, read as before, or as something else; and the faults."""
    watch()
    figures, faults = {}, []
    for name, share in SHARES.items():
        (folder / name).mkdir()
        target = targets.TARGETS[name](folder / name)
        told = Counter()
        for index in range(max(1, round(share * (count or COUNT)))):
            outcome, said = one(target, random.Random(f"{seed} {name} {index}"))
            told[outcome] += 1
            if outcome == "fault":
                faults.append(f"{name} {index}: {said}"[:400])
        figures[name] = dict(told)
    return {"mutations": sum(sum(told.values()) for told in figures.values()), "outcomes": figures, "faults": faults}


def one(target, draw):
    """What became of one mutation: (outcome, why it is a fault)."""
    name = draw.choice(target.names)
    path = target.folder / name
    whole = path.read_bytes()
    path.write_bytes(target.changed(name, whole, draw))
    try:
        return _judged(target)
    finally:
        path.write_bytes(whole)


def _judged(target):
    SEEN.clear()
    WATCHED[0], started = True, time.monotonic()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            warnings.simplefilter("ignore")
            found = target.read()
        outcome, said = target.judge(found)
    except UserError as problem:
        line = shown(str(problem))
        outcome, said = ("fault", f"no line: {line[:200]!r}") if "\n" in line else ("refused", "")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # the fault that is looked for
        last = traceback.extract_tb(problem.__traceback__)[-1]
        place = f"{Path(last.filename).name} line {last.lineno}"
        outcome, said = "fault", f"{type(problem).__name__} in {place}: {str(problem)[:200]}"
    finally:
        WATCHED[0] = False
    seconds = time.monotonic() - started
    if SEEN or target.was_run():
        return "fault", f"ran {SEEN}"
    return ("fault", f"{seconds:.0f} seconds, {outcome}") if seconds > LIMIT else (outcome, said)


def watch():
    """What is run from now on is seen, while it is watched; a hook can never be taken out again."""
    if not HOOKED:
        HOOKED.append(True)
        sys.addaudithook(_watch)


def _watch(event, given):
    if WATCHED[0] and event in RAN:
        SEEN.append(f"{event} {str(given)[:100]}")


if __name__ == "__main__":
    import tempfile

    SHARES = {name: share for name, share in SHARES.items() if sys.argv[2:] in ([], [name])}
    print(json.dumps(run(Path(tempfile.mkdtemp()), 0, int(sys.argv[1])), indent=1))
