"""One loop for the searches that step: they propose prompts, and the development rows say which is kept.

The rule, fixed before the data: the prompt of the moment is scored after every twentieth of the passes and at the
end, as the text that it is saved as; the best score of the task's metric is kept, then the least mean loss, then the
first. At most 256 development rows are used, the same for every search and seed, and as few (but 16) as keep all
scores within a quarter of the passes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.data import scores
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.text import Text
from tunescope.models.anatomy import anatomy
from tunescope.search.frame import frame
from tunescope.search.objective import Objective, objective
from tunescope.search.search import Found, Point, Say
from tunescope.search.vocabulary import vocabulary
from tunescope.tasks.answers.batches import batches, evaluating
from tunescope.tasks.prompts.templates import Ids
from tunescope.tasks.task import Encoded
from tunescope.trial.bench import Bench, room

LOOKS = 20
LEAST, MOST = 16, 256  # development rows
SHARE = 4  # all looks together take at most one part in so many
EACH = 2  # passes of a development row at a look: its answer, and its loss
DROPPED, CHANGED = "prompts that did not come back", "prompts changed to what their text comes to"
STEPS, ASKED = "steps", "development rows at a look"

Moves = Callable[[Objective, torch.Generator, int], Iterator[Tensor]]


@dataclass(frozen=True)
class Within:
    """What prompts are looked for among, and how much their fluency counts."""

    length: int
    ban: tuple[str, ...] = ()
    fluency: float = 0.0


@dataclass(frozen=True)
class Scored:
    """A prompt on the development rows."""

    text: str
    dev: float
    loss: float

    @property
    def rank(self) -> tuple[float, float]:
        return self.dev, -math.inf if math.isnan(self.loss) else -self.loss


def drive(bench: Bench, within: Within, moves: Moves, passes: int, seed: int, say: Say) -> Found:
    """The best prompt of those that `moves` proposes, by the rule above.

    moves: (objective, generator, passes) -> prompts without end, one a step, each (length,) rows of the table.

    Raises:
        UserError: see `objective` and `vocabulary`; the passes do not suffice for a step and a look; no prompt could
            be written as text.
    """
    words = vocabulary(bench.tokenizer, len(anatomy(bench.model).table.weight), within.ban, frame(bench))
    with objective(bench, words, within.length, within.fluency) as goal:
        looks = _Looks(goal, rows := _dev_rows(bench, passes), say, passes)
        cost, longest, before, due = EACH * len(rows), 0, 0, passes / LOOKS
        looks.counts[ASKED] = len(rows)
        for prompt in moves(goal, torch.Generator().manual_seed(seed), passes):
            longest, before = max(longest, goal.passes - before), goal.passes
            if goal.passes + cost > passes and looks.trace:  # dearer than any step before: it was the last
                break
            if goal.passes + cost > passes:
                raise UserError(
                    f"{passes} passes are too few: one step takes {longest} and a look at {len(rows)} development rows "
                    f"{cost}. Give at least {_least(bench, longest, passes)}: --passes, or in a comparison, whose arms "
                    "have three for each row of each step, --steps."
                )
            looks.counts[STEPS] += 1
            is_last = goal.passes + longest + cost > passes
            if is_last or goal.passes >= due:
                looks.look(prompt)
                due = (goal.passes * LOOKS // passes + 1) * passes / LOOKS
            before = goal.passes
            if goal.passes + longest + cost > passes:
                break
    return looks.found()


def _dev_rows(bench: Bench, passes: int) -> list[int]:
    """Which of the development rows are looked at."""
    count = len(bench.encoded("dev", behind="", room=None))
    wanted = min(count, MOST, max(LEAST, passes // (SHARE * LOOKS * EACH)))
    return sorted(Random(0).sample(range(count), wanted))


def _least(bench: Bench, step: int, passes: int) -> int:
    """Passes that suffice for such a step and a look, at which more rows are asked the more passes there are."""
    while (needed := step + EACH * len(_dev_rows(bench, passes))) > passes:
        passes = needed
    return passes


class _Looks:
    """Scores of prompts on the development rows, and the best of them; a text is scored once."""

    def __init__(self, goal: Objective, rows: list[int], say: Say, passes: int) -> None:
        self.goal, self.rows, self.say, self.passes = goal, rows, say, passes
        self.known: dict[str, Scored] = {}
        self.trace: list[Point] = []
        self.counts: Counter[str] = Counter()

    def look(self, prompt: Tensor) -> None:
        goal = self.goal
        settled = goal.words.settled(ids := goal.ids(prompt))
        if settled is None:
            self.counts[DROPPED] += 1
            return
        text, front = settled
        self.counts[CHANGED] += front != goal.words.whole(ids)
        if text not in self.known:
            with goal.tuned.paused():
                self.known[text] = scored(goal.bench, text, front, self.rows, goal.words.frame.behind)
            goal.passes += EACH * len(self.rows)
        self.trace.append(Point(goal.passes, text, self.known[text].dev))
        if self.trace[-1].dev > max((point.dev for point in self.trace[:-1]), default=-1.0):
            self.say(f"{goal.passes} of {self.passes} passes: {self.known[text].dev:.3f}: {text}")

    def found(self) -> Found:
        goal = self.goal
        if not self.known:
            raise UserError(
                f"None of the {self.counts[DROPPED]} prompts looked at could be written as text that comes back to "
                "tokens of the vocabulary; give more passes, or another length."
            )
        best = max(self.known.values(), key=lambda one: one.rank)  # the first of equals
        counts = {what: count for what, count in (goal.counts + self.counts).items() if count}
        task = goal.bench.task
        template, words = getattr(task, "template", ""), dict(getattr(task, "words", {}))
        return Found(best.text, template, words, best.dev, goal.passes, tuple(self.trace), counts)


def _with_room(row: Encoded, most: int | None, kind: str) -> Encoded:
    """The row, with as much of its answer as a decoder has positions for: it was cut for decoding, not for scoring."""
    if most is None or kind != "decoder" or len(row.input_ids) + len(row.target_ids) - 1 <= most:
        return row
    return replace(row, target_ids=row.target_ids[: most - len(row.input_ids) + 1])


def scored(bench: Bench, text: str, ids: Ids, rows: list[int], behind: str = "") -> Scored:
    """The task's metric and mean loss of some development rows behind a text, as attached; behind: what ends that."""
    made: dict[str, Any] = {"ids": torch.tensor(ids, dtype=torch.long)}
    with attach(bench.model, Artifact(Text(text=text), made), tokenizer=bench.tokenizer) as tuned:
        most = room(bench, tuned.positions)
        encoded = bench.encoded("dev", behind=behind, room=most)
        some = [_with_room(encoded[index], most, bench.kind) for index in rows]
        predictions = bench.task.predict(bench.model, some, bench.tokenizer)
        stats = [prediction.stats for prediction in predictions]
        total = 0.0
        with evaluating(bench.model):
            for chosen in batches([len(row.input_ids) for row in some], 32):
                part = [some[index] for index in chosen]
                total += float(bench.task.row_losses(bench.model, part, bench.tokenizer).sum())
    labelled = sum(max(1, len(row.target_ids)) for row in some)
    return Scored(text, scores.aggregate(bench.task.metric, stats)[bench.task.metric], total / labelled)
