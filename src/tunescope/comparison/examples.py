"""What arms wrote, side by side: all of it stays in the runs' folders, some of it goes to results.json and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tunescope.comparison.standing import Standing, every_seed
from tunescope.data.scores import aggregate, of_rows, statistics
from tunescope.report.verdict import stats
from tunescope.report.verdict.variance import Array
from tunescope.tasks.task import labelled

if TYPE_CHECKING:
    from tunescope.comparison.score import Scored
    from tunescope.trial.bench import Bench

SHOWN = 200  # rows in results.json
LENGTH = 1000  # characters of an input that has a label, in results.json
KEPT = ("also", "outputs", "shares")  # what a run keeps for this

Run = Mapping[str, Any]


def of_run(bench: Bench, found: Scored) -> dict[str, Any]:
    """The test scores, of the metrics too that are told beside the first; their statistics, and the texts.

    For a task that chooses among labels the scores, and the probabilities of labels where it knows them.
    """
    test, texts = found.whole, found.texts
    if not bench.task.writes:
        return {"test": dict(test)} | ({"shares": found.shares} if any(found.shares) else {})
    references = [row.references for row in _rows(bench)]
    lowercase = bench.task.lowercase
    also = {name: statistics(name, texts, references, lowercase=lowercase) for name in bench.task.also}
    values = {name: aggregate(name, own)[name] for name, own in also.items()}
    return {"test": {**test, **values}, "outputs": list(texts), "also": also}


def also(runs: Sequence[Run], level: float, inputs: Sequence[int] | None = None) -> dict[str, Any]:
    """{metric: its score and interval} of the metrics told beside the first. inputs: as of `stats.interval`."""
    found = {}
    for name in runs[0].get("also") or {}:
        one = stats.interval(_by_seed(runs, name), stats.scorer(name), level=level, inputs=inputs)
        found[name] = {"score": one.value, "interval": [one.low, one.high]}
    return found


def also_paired(one: Standing, best: Standing, level: float, inputs: Sequence[int] | None = None) -> dict[str, Any]:
    """{metric: an arm's runs minus the best arm's runs and the interval}."""
    found = {}
    for name in one.runs[0].get("also") or {}:
        a, b = _by_seed(one.runs, name), _by_seed(best.runs, name)
        gap = stats.paired(
            every_seed(one, a, b), every_seed(best, b, a), stats.scorer(name), level=level, inputs=inputs
        )
        found[name] = {"difference": gap.value, "interval": [gap.low, gap.high]}
    return found


def side_by_side(bench: Bench, standings: Sequence[Standing]) -> dict[str, Any] | None:
    """Inputs, references and every arm's output at its first seed; None where neither texts nor labels are answered.

    {"of": test rows, "arms": names, "seeds", "rows": [{"row": line, "input", "references", "outputs", "scores"}]}; the
    outputs are in the order of the arms, and so are the scores: {metric: that of this one output}. Of labels "outputs"
    are those answered and "scores" {label: its probability}, and "apart" is how many rows the arms do not agree on.
    """
    done = [one for one in standings if one.status == "done" and one.runs]
    if bench.task.is_labelled:
        return _labelled(bench, done)
    done = [one for one in done if one.runs[0].get("outputs")]
    if not bench.task.writes or not done:
        return None
    rows = _rows(bench)
    scores = [_scores(bench, one.runs[0]) for one in done]
    return _heading(rows, done) | {
        "rows": [
            {
                "row": rows[index].row,
                "input": rows[index].source,
                "references": list(rows[index].references),
                "outputs": [one.runs[0]["outputs"][index] for one in done],
                "scores": [{name: round(values[index], 4) for name, values in own.items()} for own in scores],
            }
            for index in _spread(range(len(rows)), SHOWN)
        ],
    }


def _labelled(bench: Bench, done: Sequence[Standing]) -> dict[str, Any] | None:
    """Of rows on which the arms do not agree half of those shown at most, or all that there is room for."""
    if not done:
        return None
    rows = _rows(bench)
    answers = [[int(row[2]) for row in one.runs[0]["stats"]] for one in done]
    labels, shares = labelled(bench.task).labels, [one.runs[0].get("shares") for one in done]
    apart = [index for index, given in enumerate(zip(*answers, strict=True)) if len(set(given)) > 1]
    even = _spread(range(len(rows)), SHOWN if len(rows) <= SHOWN else SHOWN // 2)
    more = _spread([index for index in apart if index not in even], SHOWN - len(even))
    return _heading(rows, done) | {
        "apart": len(apart),
        "rows": [
            {
                "row": rows[index].row,
                "input": rows[index].source[:LENGTH],
                "references": list(rows[index].references),
                "outputs": [labels[own[index]] for own in answers],
                "scores": [own[index] if own else {} for own in shares],
            }
            for index in sorted({*even, *more})
        ],
    }


def _heading(rows: Sequence[Any], done: Sequence[Standing]) -> dict[str, Any]:
    return {"of": len(rows), "arms": [one.name for one in done], "seeds": [one.runs[0]["seed"] for one in done]}


def _spread(among: Sequence[int], most: int) -> list[int]:
    """At most so many of them, spread evenly."""
    count = min(most, len(among))
    return sorted({among[at * len(among) // count] for at in range(count)})


def numbers(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The runs without their texts and without the statistics of the other metrics, which their folders keep."""
    return [{key: value for key, value in run.items() if key not in KEPT} for run in runs]


def _rows(bench: Bench) -> list[Any]:
    """The test set's items in the order in which they are scored."""
    from tunescope.trial.bench import room

    return bench.encoded("test", room=room(bench, 0))


def _scores(bench: Bench, run: Run) -> dict[str, list[float]]:
    whole = {bench.task.metric: run["stats"]} | dict(run.get("also") or {})
    return {name: of_rows(name, own) for name, own in whole.items()}


def _by_seed(runs: Sequence[Run], name: str) -> dict[int, Array]:
    return stats.by_seed([{"seed": run["seed"], "stats": run["also"][name]} for run in runs])
