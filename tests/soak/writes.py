"""Every write of a small comparison fails in turn, or is the last before the power goes; then the run is gone on with.

The answer is one line, what was done is kept, and the run comes to the numbers and files of one that nothing befell.
"""

import errno
import random
import shutil
from collections import Counter

import disk
import small_run

from tunescope.errors import UserError

NUMBERS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


class Writes:
    """The truth, and one try at a time against it."""

    def __init__(self, folder):
        self.folder, self.small = folder, small_run.SmallRun(folder)
        with disk.on(disk.Disk(folder / "truth")) as counted:
            self.truth = self.small.go_on(folder / "truth")
        self.names, self.calls = small_run.names(folder / "truth"), counted.calls

    def everything(self):
        """(call, error) of every try there is; None is the power."""
        return [(at, number) for at in range(1, len(self.calls) + 1) for number in (*NUMBERS, None)]

    def tried(self, at, number):
        """What is wrong with the answer to the at-th call failing with that error, as words; "" where nothing is."""
        place = self.folder / f"try-{at}-{number}"
        layer, told = disk.Disk(place, at, number), ""
        try:
            with disk.on(layer):
                self.small.go_on(place)
            told = "nobody noticed"
        except disk.PowerLoss:
            kept = small_run.done(place)
            shutil.rmtree(place, ignore_errors=True)
            disk.put_back(layer.lost, place)
            lost = kept - small_run.done(place) - self._in_work(layer)
            told = f"lost {len(lost)} finished runs" if lost else ""
        except UserError as problem:
            way_on = "type: tunescope resume" if (place / "config.json").exists() else "type the same command again"
            told = "" if "\n" not in str(problem) and way_on in str(problem) else f"says {problem}"
        except Exception as problem:
            told = f"a traceback: {problem!r}"
        return told or self._resumed(place)

    def _in_work(self, layer):
        """The arm run whose folder was about to be, or had just been, given its name."""
        kind, name = layer.calls[-1]
        return {name} | ({one for other, one in layer.calls[-2:-1] if other == "rename"} if kind == "fsync" else set())

    def _resumed(self, place):
        try:
            if self.small.go_on(place) != self.truth:
                return "other numbers"
        except Exception as problem:
            return f"cannot be gone on with: {problem!r}"
        differ = set(small_run.names(place)) ^ set(self.names)
        if not differ:
            shutil.rmtree(place, ignore_errors=True)
        return f"other files: {sorted(differ)[:4]}" if differ else ""


def run(folder, seed, count):
    """The figures. count: of tries, drawn by the seed; 0 for all there are."""
    writes = Writes(folder)
    tries = writes.everything()
    chosen = random.Random(seed).sample(tries, min(count, len(tries))) if count else tries
    faults = [
        f"{number and errno.errorcode[number]} at {at}: {told}"
        for at, number in chosen
        if (told := writes.tried(at, number))
    ]
    kinds = Counter("power loss" if number is None else errno.errorcode[number] for _, number in chosen)
    calls = Counter(kind for kind, _ in writes.calls)
    return {"tries": len(chosen), "of": len(tries), "errors": dict(kinds), "calls": dict(calls), "faults": faults}
