"""An arm in the running, ready or refused, and every job that it may come to."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tunescope.comparison import arms
from tunescope.comparison.arm_methods import methods_of, served_as
from tunescope.comparison.job import Job, job
from tunescope.comparison.standing import Standing
from tunescope.errors import UserError
from tunescope.trial.arm import Arm, Ready, has_every_seed
from tunescope.trial.bench import Bench
from tunescope.trial.budget import TooSmallBudget
from tunescope.trial.rates import grid, start


@dataclass
class Entry:
    """An arm in the running: what is known of it, and the jobs that are to tell more."""

    standing: Standing
    arm: Ready | None = None
    trials: list[Job] = field(default_factory=list)
    start: tuple[float, ...] = ()  # the middle of the rates that are tried at first
    chosen: tuple[float, ...] | None = None  # the rates that won
    runs: list[Job] = field(default_factory=list)
    unmoved: str = ""  # that no rate has taught it anything
    short: TooSmallBudget | None = None  # why it is refused, where a larger budget would do


class AllRefused(UserError):  # noqa: N818
    """No arm is left to compare; `reason` is the first one's."""

    def __init__(self, name: str, reason: str):
        told = reason if reason.startswith(f"{name}: ") else f"{name}: {reason}"
        super().__init__(f"every arm was refused; {told}")
        self.reason = reason


def not_all_refused(entries: list[Entry]) -> list[Entry]:
    if all(entry.standing.status == "refused" for entry in entries):
        first = entries[0].standing
        raise AllRefused(first.name, first.reason)
    return entries


def check_sides(entries: list[Entry]) -> None:
    """UserError where the budget has room for none of the contexts, or none of the deltas, that were asked.

    The others would be trained for nothing: there is no verdict without both.
    """
    ready = {entry.standing.group for entry in entries if entry.arm is not None}
    short = [(entry.standing.name, entry.short) for entry in entries if entry.short and "+" not in entry.standing.spec]
    for kind, other in (("context", "delta"), ("delta", "context")):
        missed = [(why.least, name, why) for name, why in short if why.kind == kind]
        if missed and kind not in ready and other in ready:
            least, name, why = min(missed, key=lambda one: one[0])
            raise UserError(
                f"The budget leaves no {kind} to compare with a {other}, so there would be no verdict; {name}: {why} "
                f"Type: --budget {least}, or more"
            )


def distinct(jobs: Iterable[Job]) -> list[Job]:
    """Arms that come to the same spec share their runs."""
    return list({todo.id: todo for todo in jobs}.values())


def entered(bench: Bench) -> list[Entry]:
    """Every arm of the plan, ready or refused; nothing is written yet.

    Raises:
        UserError: every arm was refused.
    """
    return not_all_refused([_entry(bench, one) for one in arms.planned_arms(bench)])


def _entry(bench: Bench, arm: Arm) -> Entry:
    """The arm made ready with its trials, or refused with the reason."""
    try:
        prepared = arms.ready(arm, bench)
    except UserError as problem:
        short = problem if isinstance(problem, TooSmallBudget) else None
        return Entry(Standing(arm.name, arm.text, status="refused", reason=str(problem)), short=short)
    standing = Standing(arm.name, prepared.label, prepared.group, prepared.note, prepared.counts)
    standing.varies = has_every_seed(bench.plan, prepared)
    standing.methods, standing.served_as = methods_of(prepared), served_as(prepared, bench)
    entry = Entry(standing, prepared)
    if prepared.trained:
        seed = bench.plan.seeds[0]
        rates = grid(prepared.grids, bench.plan.trials, bench.plan.rates)
        entry.trials = [trial_of(bench, prepared, rate, seed) for rate in rates]
        entry.start = start(rates)
    return entry


def trial_of(bench: Bench, arm: Ready, rates: tuple[float, ...], seed: int) -> Job:
    """A learning rate's trial: a run as any other, or a pilot's few steps, of which only the training loss counts."""
    found = job(bench, arm, rates, seed, steps=bench.plan.trial_steps)
    return found if bench.plan.trial_steps is None else replace(found, scored=False)


def jobs_left(bench: Bench, entry: Entry) -> list[Job]:
    """Every job that the arm has, or may still come to: its trials, and at the rates that won every seed's run."""
    if entry.arm is None or (entry.trials and entry.chosen is None):
        return entry.trials
    runs = [job(bench, entry.arm, entry.chosen or (), seed) for seed in bench.plan.every_seed]
    return [*entry.trials, *runs]
