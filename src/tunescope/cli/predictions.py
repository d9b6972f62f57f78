"""The verb that puts a finished run to use: predict."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tunescope.system.say import say

if TYPE_CHECKING:
    from tunescope.comparison.predict import Asked

EVERY = 512  # rows between two lines that say how far it is
SHOWN = 10  # labels of which it is told how often they were answered


def predict(run: str, data: str, /, *, out: str, arm: str = "", field: str = "prediction", device: str = "") -> None:
    """Answer new rows with an arm of a finished RUN, asked as its test rows were; score them where they have answers.

    Args:
        run: the folder of a comparison, its model and rows where they were.
        data: rows with the fields that the run asks of, with answers or without: JSONL, CSV, TSV or Parquet.
        out: a new file, .jsonl or .csv: the rows, each with its answer, and of a label with its probability.
        arm: one of the run's arms (default: the best on the development rows), at its best seed there.
        field: what the answers are called.
        device: where the model is (default: where it was).
    """
    from tunescope.comparison.predict import asked
    from tunescope.data.write import check_new, new_file
    from tunescope.system import files

    check_new(Path(out))
    answers = Counter[str]()
    with asked(run, data, arm=arm, field=field, device=device) as question, new_file(Path(out), question.names) as put:
        most = len(question.rows)
        try:
            for done, row in enumerate(question.answered(), start=1):
                put(row)
                answers[row[field]] += 1
                if done % EVERY == 0 and done < most:
                    say(f"{done:,} of {most:,} rows", sys.stderr)
        except BaseException as problem:
            if not answers:  # nothing would be lost, and the same command can be typed again
                files.remove(Path(out))
            elif isinstance(problem, KeyboardInterrupt):
                raise KeyboardInterrupt(f"stopped; {_so_far(answers.total(), most, out)}") from None
            else:
                say(f"{_so_far(answers.total(), most, out)}: for that give another --out", sys.stderr)
            raise
        _tell(question, answers, out)


def _so_far(done: int, most: int, out: str) -> str:
    return f"the first {done:,} of {most:,} rows are in {out}, and the rest begins with row {done + 1:,}"


def _tell(question: "Asked", answers: Counter[str], out: str) -> None:
    """Who answered, how often which label, and how well where that is known."""
    from tunescope.data import scores
    from tunescope.report import text

    rows = f"{len(question.rows):,} row{'s' * (len(question.rows) != 1)}"
    say(f"{rows} answered by {question.arm}, seed {question.todo.seed}: {out}")
    if question.bench.task.is_labelled:
        more = [f"and {len(answers) - SHOWN} more labels"] * (len(answers) > SHOWN)
        say(", ".join([*(f"{label} {count:,}" for label, count in answers.most_common(SHOWN)), *more]))
    scored = question.score()
    if scored is not None:
        metric, found = scored
        scale = scores.scale(metric)
        say(f"{text.metric(metric)} {text.score(found.value, scale)} ({text.span([found.low, found.high], scale)})")
    elif question.without < len(question.rows):
        say(f"not scored: {question.without:,} of the rows have no answer of their own")
