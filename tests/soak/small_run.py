"""The smallest comparison with files of all kinds, on a model that stays loaded; and what two runs have in common."""

import tinyrun

from tunescope.comparison import comparison, run
from tunescope.system import run_folder
from tunescope.trial import plan, plan_check
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings

CLOCKED = {
    *("created", "seconds", "memory_mb", "cpu_seconds", "seconds_of_pieces", "cpu_seconds_of_pieces"),
    *("seconds_of_this_go", "digest", "workers", "command"),
}


class SmallRun:
    """`go_on(folder)`: the comparison there, its state saved at every step."""

    def __init__(self, folder):
        model, data = tinyrun.write(folder)
        settings = Settings(steps=2, batch_size=8, eval_every=1)
        asked = {"arms": ("zero-shot", "lora"), "budgets": (256,), "seeds": (0,), "task": {"kind": "classification"}}
        self.plan = plan_check.check(plan.Plan(model=model, data=data, trials=2, beyond=0, settings=settings, **asked))
        self.bench = open_bench(self.plan)
        run.SAVE_EVERY = 0.0

    def go_on(self, folder):
        return numbers(comparison.run(self.plan, folder, tinyrun.opened(self.bench), by_name=True, quiet=True).results)


def numbers(found):
    """Without what a clock or a meter read."""
    if isinstance(found, dict):
        return {key: numbers(value) for key, value in found.items() if key not in CLOCKED}
    return [numbers(value) for value in found] if isinstance(found, list) else found


def names(folder):
    """Every file and folder of a run."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def done(folder):
    """The arm runs that are finished there."""
    here = folder / "arms"
    there = sorted(path.name for path in here.iterdir()) if here.exists() else []
    return {name for name in there if ".tmp-" not in name and run_folder.finished(folder, name) is not None}
