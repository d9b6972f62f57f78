"""What an arm writes or chooses on the rows of a part, and what it scores there."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tunescope.attachment.tuned import Tuned
from tunescope.comparison.job import Job
from tunescope.data import scores
from tunescope.trial import questions
from tunescope.trial.bench import Bench


def rows_of(bench: Bench, todo: Job, tuned: Tuned, part: str) -> list[Any]:
    return questions.rows_of(todo.arm, bench, tuned, part, todo.seed)


@dataclass(frozen=True)
class Scored:
    """The metric and its companions, its statistics, answers and labels' shares row by row, means of their figures."""

    whole: dict[str, float]
    value: float
    stats: list[list[float]]
    texts: list[str]
    shares: list[dict[str, float]]
    figures: dict[str, float]


def score(bench: Bench, todo: Job, tuned: Tuned, part: str, only: Sequence[int] | None = None) -> Scored:
    """What it scores on the rows of a part; only: on those of these numbers."""
    training = tuned.training
    if training:
        tuned.eval()
    predictions = questions.predictions(todo.arm, bench, tuned, part, todo.seed, only)
    if training:
        tuned.train()
    stats = [list(prediction.stats) for prediction in predictions]
    whole, texts = scores.aggregate(bench.task.metric, stats), [prediction.text for prediction in predictions]
    shares = [dict(prediction.shares) for prediction in predictions]
    return Scored(whole, whole[bench.task.metric], stats, texts, shares, _means(predictions))


def _means(predictions: Sequence[Any]) -> dict[str, float]:
    names = predictions[0].figures
    return {name: fmean(one.figures[name] for one in predictions) for name in names}


def cut(bench: Bench, todo: Job, tuned: Tuned, *parts: str) -> dict[str, int]:
    """Rows of each part that did not fit beside the context, and were cut: behind any of their sets of demonstrations,
    and of training rows whose demonstrations are drawn anew each time, as at first."""
    sets = {part: questions.sets_of(todo.arm, bench, tuned, part, todo.seed) for part in parts}
    return {part: sum(any(one.cut for one in row) for row in zip(*sets[part], strict=True)) for part in parts}
