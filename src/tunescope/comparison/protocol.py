"""The protocol, the same for every arm: try its learning rates at one seed, choose on dev, then all seeds on test."""

from dataclasses import replace
from typing import Any

from tunescope.attachment.share import is_shared
from tunescope.comparison import halving, saved_artifact, shared_passes, trials
from tunescope.comparison.conclusion import conclude, drop_losers, fail
from tunescope.comparison.deadline import Deadline
from tunescope.comparison.entry import Entry, distinct, jobs_left, not_all_refused, trial_of
from tunescope.comparison.execution import Execution, at_work
from tunescope.comparison.few_test_rows import few_test_rows
from tunescope.comparison.job import Job, job
from tunescope.comparison.outcome import Outcome
from tunescope.comparison.own_sizes import own_sizes
from tunescope.comparison.progress import Display, display
from tunescope.comparison.standing import Standing
from tunescope.report.verdict.words import PAIR
from tunescope.system import job_folder, run_folder
from tunescope.trial.arm import seeds_of
from tunescope.trial.bench import Bench
from tunescope.trial.provenance import notes_of

TRIAL = ("id", "learning_rate", "seed", "dev", "seconds", "status", "reason")


def tried(
    bench: Bench, entries: list[Entry], execution: Execution, deadline: Deadline | None = None
) -> tuple[list[Standing], int]:
    """Every arm's standing after all its runs, and how many runs shared a pass.

    Runs that would be over too late for the deadline are not begun.

    Raises:
        UserError: every arm was refused.
    """
    folder, deadline = execution.folder, deadline or Deadline(bench.plan)
    with display([entry.standing.name for entry in entries], quiet=execution.quiet) as shown:
        ready = [entry.arm for entry in entries if entry.arm is not None and entry.arm.group in PAIR]
        stored = [(one.counts["stored"], one.arm.name) for one in ready]
        for note in [*notes_of(bench), *few_test_rows(bench), *own_sizes(bench.plan, stored)]:
            shown.say(f"note: {note}")
        for entry in entries:
            if entry.arm is None:
                shown.done(entry.standing.name, "", {"status": "refused", "reason": entry.standing.reason})
        run_folder.drop_damaged(folder, shown.say)
        for line in saved_artifact.damaged(folder):
            shown.say(line)
        run_folder.sweep(folder, at_work=job_folder.leased(folder))
        with at_work(bench, execution, shown, lambda: _expected(bench, entries)) as any_run:
            run = deadline.timed(any_run)
            begun = distinct(todo for entry in entries for todo in entry.trials)
            together = _together(bench, begun, shown)
            if bench.plan.halving:
                halving.race(bench.plan, [entry.trials for entry in entries], run, folder, together)
            outcomes = run(begun, together)
            for _ in range(bench.plan.past):
                if not (later := _past_the_end(bench, entries, outcomes, deadline, shown)):
                    break
                outcomes |= run(distinct(later), together)
            for entry in entries:
                _choose(bench, entry, outcomes)
            left = {todo.id for entry in entries for todo in jobs_left(bench, entry)}
            run_folder.sweep_half_done(folder, {*left, *job_folder.leased(folder)})
            _seeds_in_time(bench, entries, deadline, shown)
            outcomes = run(distinct(todo for entry in entries for todo in entry.runs), together)
        for entry in entries:
            conclude(entry, outcomes)
            drop_losers(folder, entry)
    return [entry.standing for entry in not_all_refused(entries)], together


def more(bench: Bench, entries: list[Entry], seeds: tuple[int, ...], execution: Execution, together: int) -> None:
    """These arms at these seeds, of which they have some; their standings are brought up to date.

    together: runs that share a pass, as many as shared one before.
    """
    for entry in entries:
        assert entry.arm is not None  # it has finished before
        entry.runs = [job(bench, entry.arm, entry.chosen or (), seed, test=True) for seed in seeds]
    with (
        display([entry.standing.name for entry in entries], quiet=execution.quiet) as shown,
        at_work(bench, execution, shown, lambda: _expected(bench, entries)) as run,
    ):
        outcomes = run(distinct(todo for entry in entries for todo in entry.runs), together)
    for entry in entries:
        conclude(entry, outcomes)


def _expected(bench: Bench, entries: list[Entry]) -> dict[str, int | None]:
    """How many runs every arm is to have, as far as is known; None of one that was refused."""
    found: dict[str, int | None] = {}
    for entry in entries:
        found[entry.standing.name] = None
        if entry.arm is not None:
            seeds = max(len(seeds_of(bench.plan, entry.arm)), len(entry.runs))
            shared = bool(entry.trials) and bench.plan.trial_steps is None  # a trial is the run of the first seed
            found[entry.standing.name] = len({todo.id for todo in entry.trials}) + seeds - shared
    return found


def _together(bench: Bench, jobs: list[Job], shown: Display) -> int:
    """How many runs share a pass: as asked, or as measured, which is told."""
    if is_shared(bench.model) or bench.plan.halve_batches:  # what is quickest may be another in every process
        return 1
    if bench.plan.together:
        return bench.plan.together
    size, note = shared_passes.best_size(bench, jobs)
    shown.say(note)
    return size


def _choose(bench: Bench, entry: Entry, outcomes: dict[str, Outcome]) -> None:
    """The learning rate of the best trial; then one run a seed."""
    standing, arm = entry.standing, entry.arm
    if arm is None:
        return
    if arm.trained:
        tried = [outcomes[todo.id] for todo in entry.trials]
        standing.trials = [_trial(todo, outcomes[todo.id]) for todo in entry.trials]
        won = trials.best(entry, outcomes)
        if won is None:
            fail(standing, next(one for one in tried if one["status"] != "lost"))
            return
        entry.chosen, standing.learning_rate, standing.learning_rates = won.rates, won.rate, won.each_rate
        standing.head_learning_rate = won.head_rate
        entry.unmoved = trials.unmoved_remark(bench, entry, outcomes)
    seeds = seeds_of(bench.plan, arm)
    entry.runs = [job(bench, arm, entry.chosen or (), seed, test=True) for seed in seeds]


def _past_the_end(
    bench: Bench, entries: list[Entry], outcomes: dict[str, Outcome], deadline: Deadline, shown: Display
) -> list[Job]:
    """Of every arm that has rates left to try (see `trial.rates`) one trial more, added to them.

    None where the seeds behind them would then be over too late.
    """
    found, later = [], []
    for entry in entries:
        won, more = trials.best(entry, outcomes), trials.next_rates(bench, entry, outcomes)
        if entry.arm is not None and more:
            found.append((entry, trial_of(bench, entry.arm, more, bench.plan.seeds[0])))
        if entry.arm is not None and (won or not entry.arm.trained):
            rates = won.rates if won else ()
            later += [job(bench, entry.arm, rates, seed, test=True) for seed in seeds_of(bench.plan, entry.arm)]
    if found and not deadline.allows(distinct(todo for _, todo in found), distinct(later)):
        shown.say(f"note: --minutes {bench.plan.minutes:g} leaves no time for learning rates beyond those of the grids")
        _cut_further(bench, "no time for more learning rates beyond those of the grids")
        return []
    for entry, todo in found:
        entry.trials.append(todo)
    return [todo for _, todo in found]


def _seeds_in_time(bench: Bench, entries: list[Entry], deadline: Deadline, shown: Display) -> None:
    """Fewer seeds, the same of every arm, where all would be over too late; one is always run."""
    seeds = bench.plan.seeds
    count = len(seeds)
    while count > 1 and not deadline.allows(distinct(todo for entry in entries for todo in entry.runs[:count])):
        count -= 1
    if count < len(seeds):
        told = f"it went {deadline.slower:.1f} times slower than timed before: {count} of {len(seeds)} seeds"
        shown.say(f"note: {told}")
        _cut_further(bench, told, seeds=seeds[:count])
        for entry in entries:
            entry.runs = entry.runs[:count]


def _cut_further(bench: Bench, told: str, **fields: Any) -> None:
    """The plan with less than the minutes had left of it, which is kept in words."""
    plan = bench.plan
    fit = plan.fit and replace(plan.fit, left_out=(*plan.fit.left_out, told))
    bench.cut_to(replace(plan, fit=fit, **fields))


def _trial(todo: Job, outcome: Outcome) -> dict[str, Any]:
    loss = {"loss": trials.last_loss(outcome)} if outcome["status"] == "done" else {}
    rates = {"learning_rates": todo.each_rate, "head_learning_rate": todo.head_rate}
    return {key: outcome.get(key) for key in TRIAL} | rates | loss
