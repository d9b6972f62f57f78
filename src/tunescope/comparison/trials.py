"""Of an arm's trials the best, and the learning rate that is tried after them."""

from collections import Counter
from collections.abc import Mapping

from tunescope.comparison.entry import Entry
from tunescope.comparison.job import Job
from tunescope.comparison.outcome import Outcome
from tunescope.tasks.task import Labelled
from tunescope.trial.bench import Bench
from tunescope.trial.dev_rows import asked
from tunescope.trial.rates import Rates, following, unless_far_off


def best(entry: Entry, outcomes: Mapping[str, Outcome]) -> Job | None:
    """The trial with the best development score, ties to the lower loss; in a pilot the start, unless it is far off."""
    done = [todo for todo in entry.trials if outcomes[todo.id]["status"] == "done"]
    if done and not done[0].scored:
        rates = unless_far_off(entry.start, {todo.rates: last_loss(outcomes[todo.id]) for todo in done})
        return next(todo for todo in done if todo.rates == rates)
    return max(done, key=lambda todo: (outcomes[todo.id]["dev"] or 0.0, -last_loss(outcomes[todo.id])), default=None)


def next_rates(bench: Bench, entry: Entry, outcomes: Mapping[str, Outcome]) -> Rates | None:
    """Past an end of the rates that are tried, or of one method alone; None where what has won lies between others."""
    won = best(entry, outcomes)
    if won is None:
        return None
    unmoved = _unmoved(bench, entry, outcomes) is not None
    tried = [todo.rates for todo in entry.trials]
    return following(tried, won.rates, won.arm.parts, apart=bench.plan.apart, unmoved=unmoved)


def unmoved_remark(bench: Bench, entry: Entry, outcomes: Mapping[str, Outcome]) -> str:
    """That no rate has taught it anything; "" where one has."""
    most = _unmoved(bench, entry, outcomes)
    floor = _one_answer(bench)
    if most is None:
        return ""
    same = f", and one answer to all rows gets {floor:.3g}" if floor else ""
    return f"Nothing was learnt at any learning rate tried: on dev at most {most:.3g}{same}."


def _unmoved(bench: Bench, entry: Entry, outcomes: Mapping[str, Outcome]) -> float | None:
    """The best of the scores, where none is above what one answer to all rows gets."""
    scores = [outcomes[todo.id]["dev"] for todo in entry.trials if outcomes[todo.id]["status"] == "done"]
    known = [float(score) for score in scores if score is not None]
    return max(known) if known and max(known) <= _one_answer(bench) else None


def last_loss(outcome: Outcome) -> float:
    """The training loss since the last but one evaluation: it tells rates apart while every score is still zero."""
    return float(outcome["curve"][-1]["loss"])


def _one_answer(bench: Bench) -> float:
    """What the same answer to every development row gets at most, in accuracy; of any other metric nothing."""
    seen = bench.at(bench.plan.seeds[0])
    if bench.task.metric != "accuracy" or not isinstance(bench.task, Labelled):
        return 0.0
    labels = Counter(row.label for row in asked(seen, "dev"))
    return max(labels.values()) / labels.total()
