"""The protocol, the same for every arm: try its learning rates at one seed, choose on dev, then all seeds on test."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tunescope.attachment.share import is_shared
from tunescope.comparison import arms, examples, halving, saved_artifact, shared_passes
from tunescope.comparison.job import Job, job
from tunescope.comparison.made_of import methods_of, served_as
from tunescope.comparison.pace import Pace
from tunescope.comparison.place import Place, at_work
from tunescope.comparison.progress import Display, display
from tunescope.comparison.run import Outcome
from tunescope.comparison.standing import Standing
from tunescope.errors import UserError
from tunescope.report.verdict.remarks import rate_remarks, remarks
from tunescope.system import files, job_folder, run_folder
from tunescope.trial.arm import Arm, Ready, seeds_of
from tunescope.trial.bench import Bench
from tunescope.trial.facts import notes_of
from tunescope.trial.rates import following, grid, possible, start, unless_far_off

TRIAL = ("id", "learning_rate", "seed", "dev", "status", "reason")
NUMBERS = ("id", "seed", "dev", "test", "stats", "seconds", "memory_mb", "steps", "curve", "mechanism", "forgetting")
RUN = (*NUMBERS, "demonstrations", "found", "reading", *examples.KEPT)  # None for most arms


@dataclass
class Entry:
    """An arm in the running: what is known of it, and the jobs that are to tell more."""

    standing: Standing
    arm: Ready | None = None
    trials: list[Job] = field(default_factory=list)
    start: tuple[float, ...] = ()  # the middle of the rates that are tried at first
    chosen: tuple[float, ...] | None = None  # the rates that won
    runs: list[Job] = field(default_factory=list)


def entered(bench: Bench) -> list[Entry]:
    """Every arm of the plan, ready or refused; nothing is written yet.

    Raises:
        UserError: every arm was refused.
    """
    return _not_all_refused([_entry(bench, one) for one in arms.asked(bench)])


def tried(bench: Bench, entries: list[Entry], place: Place, pace: Pace | None = None) -> list[Standing]:
    """Every arm's standing after all its runs; those that would be over too late for the pace are not begun.

    Raises:
        UserError: every arm was refused.
    """
    folder, pace = place.folder, pace or Pace(bench.plan)
    with display([entry.standing.name for entry in entries], quiet=place.quiet) as shown:
        for note in notes_of(bench):  # a test row that is also in train is known before the first step
            shown.say(f"note: {note}")
        for entry in entries:
            if entry.arm is None:
                shown.done(entry.standing.name, "", {"status": "refused", "reason": entry.standing.reason})
        run_folder.drop_damaged(folder, shown.say)
        wanted = {todo.id for entry in entries for todo in _possible(bench, entry)}
        run_folder.sweep(folder, wanted, job_folder.leased(folder))
        with at_work(bench, place, shown, lambda: _expected(bench, entries)) as any_run:
            run = pace.timed(any_run)
            trials = _distinct(todo for entry in entries for todo in entry.trials)
            together = _together(bench, trials, shown)
            if bench.plan.halving:
                halving.race(bench.plan, [entry.trials for entry in entries], run, folder, together)
            outcomes = run(trials, together)
            for _ in range(bench.plan.past):
                outcomes |= run(_distinct(_past_the_end(bench, entries, outcomes, pace, shown)), together)
            for entry in entries:
                _choose(bench, entry, outcomes)
            _seeds_in_time(bench, entries, pace, shown)
            outcomes = run(_distinct(todo for entry in entries for todo in entry.runs), together)
        for entry in entries:
            _conclude(entry, outcomes)
            _drop_losers(folder, entry)
    return [entry.standing for entry in _not_all_refused(entries)]


def more(bench: Bench, entries: list[Entry], seeds: tuple[int, ...], place: Place) -> None:
    """These arms at these seeds, of which they have some; their standings are brought up to date."""
    for entry in entries:
        assert entry.arm is not None  # it has finished before
        entry.runs = [job(bench, entry.arm, entry.chosen or (), seed, test=True) for seed in seeds]
    with (
        display([entry.standing.name for entry in entries], quiet=place.quiet) as shown,
        at_work(bench, place, shown, lambda: _expected(bench, entries)) as run,
    ):
        outcomes = run(_distinct(todo for entry in entries for todo in entry.runs), bench.plan.together or 1)
    for entry in entries:
        _conclude(entry, outcomes)


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


class AllRefused(UserError):  # noqa: N818
    """No arm is left to compare; `reason` is the first one's."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"every arm was refused; {name}: {reason}")
        self.reason = reason


def _not_all_refused(entries: list[Entry]) -> list[Entry]:
    if all(entry.standing.status == "refused" for entry in entries):
        first = entries[0].standing
        raise AllRefused(first.name, first.reason)
    return entries


def _distinct(jobs: Iterable[Job]) -> list[Job]:
    """Arms that come to the same spec share their runs."""
    return list({todo.id: todo for todo in jobs}.values())


def _entry(bench: Bench, arm: Arm) -> Entry:
    """The arm made ready with its trials, or refused with the reason."""
    try:
        prepared = arms.ready(arm, bench)
    except UserError as problem:
        return Entry(Standing(arm.name, arm.text, status="refused", reason=str(problem)))
    standing = Standing(arm.name, prepared.label, prepared.group, prepared.note, prepared.counts)
    standing.methods, standing.served_as = methods_of(prepared), served_as(prepared, bench.kind)
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


def _possible(bench: Bench, entry: Entry) -> list[Job]:
    """Every job that the arm may still come to, whatever is chosen."""
    seeds, arm = bench.plan.every_seed, entry.arm
    if arm is None:
        return []
    tried = [trial.rates for trial in entry.trials]
    further = possible(tried, bench.plan.past)
    trials = [trial_of(bench, arm, rate, seeds[0]) for rate in (*tried, *further)]
    rates = [*tried, *further] or [()]
    return [*trials, *(job(bench, arm, rate, seed) for rate in rates for seed in seeds)]


def _choose(bench: Bench, entry: Entry, outcomes: dict[str, Outcome]) -> None:
    """The learning rate that `_best` names; then one run a seed."""
    standing, arm = entry.standing, entry.arm
    if arm is None:
        return
    if arm.trained:
        trials = [outcomes[todo.id] for todo in entry.trials]
        standing.trials = [_trial(one) for one in trials]
        best = _best(entry, outcomes)
        if best is None:
            _fail(standing, next(one for one in trials if one["status"] != "lost"))
            return
        entry.chosen, standing.learning_rate = best.rates, best.rate
    seeds = seeds_of(bench.plan, arm)
    entry.runs = [job(bench, arm, entry.chosen or (), seed, test=True) for seed in seeds]


def _best(entry: Entry, outcomes: dict[str, Outcome]) -> Job | None:
    """The trial with the best development score, ties to the lower loss; in a pilot the start, unless it is far off."""
    done = [todo for todo in entry.trials if outcomes[todo.id]["status"] == "done"]
    if done and not done[0].scored:
        rates = unless_far_off(entry.start, {todo.rates: _last_loss(outcomes[todo.id]) for todo in done})
        return next(todo for todo in done if todo.rates == rates)
    return max(done, key=lambda todo: (outcomes[todo.id]["dev"] or 0.0, -_last_loss(outcomes[todo.id])), default=None)


def _past_the_end(
    bench: Bench, entries: list[Entry], outcomes: dict[str, Outcome], pace: Pace, shown: Display
) -> list[Job]:
    """Of every arm whose best trial is at an end of its rates one trial more, which is added to them.

    None where the seeds behind them would then be over too late.
    """
    found, later = [], []
    for entry in entries:
        best = _best(entry, outcomes)
        more = best and following([todo.rates for todo in entry.trials], best.rates)
        if entry.arm is not None and more:
            found.append((entry, trial_of(bench, entry.arm, more, bench.plan.seeds[0])))
        if entry.arm is not None and (best or not entry.arm.trained):
            rates = best.rates if best else ()
            later += [job(bench, entry.arm, rates, seed, test=True) for seed in seeds_of(bench.plan, entry.arm)]
    if found and not pace.allows(_distinct(todo for _, todo in found), _distinct(later)):
        shown.say(f"note: --minutes {bench.plan.minutes:g} leaves no time for learning rates past an end of their grid")
        return []
    for entry, todo in found:
        entry.trials.append(todo)
    return [todo for _, todo in found]


def _seeds_in_time(bench: Bench, entries: list[Entry], pace: Pace, shown: Display) -> None:
    """Fewer seeds, the same of every arm, where all would be over too late; one is always run."""
    plan, count = bench.plan, len(bench.plan.seeds)
    while count > 1 and not pace.allows(_distinct(todo for entry in entries for todo in entry.runs[:count])):
        count -= 1
    if count < len(plan.seeds):
        told = f"it went {pace.slower:.1f} times slower than timed before: {count} of {len(plan.seeds)} seeds"
        shown.say(f"note: {told}")
        fit = plan.fit and replace(plan.fit, left_out=(*plan.fit.left_out, told))
        bench.plan = replace(plan, seeds=plan.seeds[:count], fit=fit)
        for entry in entries:
            entry.runs = entry.runs[:count]


def _trial(outcome: Outcome) -> dict[str, Any]:
    loss = {"loss": _last_loss(outcome)} if outcome["status"] == "done" else {}
    return {key: outcome.get(key) for key in TRIAL} | loss


def _last_loss(outcome: Outcome) -> float:
    """The training loss since the last but one evaluation: it tells rates apart while every score is still zero."""
    return float(outcome["curve"][-1]["loss"])


def _conclude(entry: Entry, outcomes: dict[str, Outcome]) -> None:
    """The runs of the chosen rate; an arm that lost one of them has no score, since the others have all theirs."""
    standing, found = entry.standing, [outcomes[todo.id] for todo in entry.runs]
    standing.runs = [{key: one.get(key) for key in RUN} for one in found if one["status"] == "done"]
    lost = [one for one in found if one["status"] != "done"]
    if lost:
        _fail(standing, lost[0])
    standing.remarks = [*(rate_remarks(standing.trials) if not lost else []), *remarks(standing.runs)]
    texts = dict.fromkeys(one["found"]["text"] for one in found if one.get("found"))
    if texts:
        standing.remarks.append(f"found: {' | '.join(texts)}")
    if any(one.get("together") for one in found):
        standing.note += "; shared passes: its memory is that of all who shared, its time is its part"
    cut: dict[str, int] = {}
    for one in found:
        for part, rows in {**one.get("cut", {}), **one.get("cut_test", {})}.items():
            cut[part] = max(rows, cut.get(part, 0))
    if any(cut.values()):
        told = ", ".join(f"{rows:,} {part}" for part, rows in cut.items() if rows)
        beside = " beside what stands in front" if standing.group in ("context", "text", "both") else ""
        standing.remarks.append(f"inputs cut to fit the model's positions{beside}: {told} rows.")


def _fail(standing: Standing, outcome: Outcome) -> None:
    standing.status = outcome["status"]
    standing.reason = f"seed {outcome['seed']}" + (
        f", learning rate {outcome['learning_rate']:g}" if outcome["learning_rate"] else ""
    )
    standing.reason += f": {outcome['reason']}"


def _drop_losers(folder: Path, entry: Entry) -> None:
    """Tensors of learning rates that were not chosen; their numbers stay."""
    kept = {todo.id for todo in entry.runs}
    for todo in entry.trials if entry.runs else []:
        if todo.id not in kept:
            files.remove(run_folder.folder(folder, todo.id) / "artifact")


def keep_best(folder: Path, best: Standing) -> bool:
    """Copy the artifact of the best arm's best run to RUN/best; False where the best arm has nothing to keep.

    Raises UserError for an artifact that is damaged; what was in RUN/best then stays.
    """
    chosen = max(best.runs, key=lambda one: one["dev"])
    source, target = saved_artifact.place(folder, chosen["id"]), folder / "best"
    if not source.exists():
        files.remove(target)
        return False
    saved_artifact.copy(source, target, f"type: tunescope resume {folder}")
    return True
