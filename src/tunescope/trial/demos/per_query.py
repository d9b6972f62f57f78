"""Demonstrations of each query's own: which rows they are drawn from, and the query behind them.

LM-BFF (Gao et al. 2021, arXiv:2012.15723, section 6): for each query one row of each class, drawn from the half of the
class that is most like it, drawn anew whenever a training row is looked at, and several times for a row that is tested.
Theirs stand behind the query, in the order of the classes; ours in front, where a decoder can read them, mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from tunescope.tasks.task import labelled
from tunescope.trial.demos.draw import sets_of, solved, text
from tunescope.trial.demos.spec import Demos, Set

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.tasks.prompts.templates import Ids
    from tunescope.tasks.task import Encoded, Rows, Task
    from tunescope.trial.bench import Bench


LEAD = 32  # tokens of the words between steps and answer: a row with less room than that to spare is looked at


@dataclass(frozen=True)
class QueryDemos:
    """How an arm asks with demonstrations of each query's own.

    taken: positions of what is attached. front: the text among it, which begins the sequence; None without one.
    """

    demos: Demos
    bench: Bench
    task: Task
    taken: int
    front: str | None

    def fronts(self, part: str, seed: int) -> list[list[Ids]]:
        """set -> row -> the tokens of its demonstrations, drawn by the seed; the same whenever they are asked for."""
        kept, key = self.bench.demos.fronts, (self.demos, repr(self.task), part, seed, self.front)
        if key not in kept:
            random = Random(f"{seed} {part}")
            rows = range(len(self.bench.encoded(part, behind=self._end, room=None, task=self.task)))
            sets = [sets_of(self.demos, self.bench, part, index, random) for index in rows]
            kept[key] = [[self._tokens(one) for one in some] for some in zip(*sets, strict=True)]
        return kept[key]

    def rows(self, part: str, seed: int) -> list[list[Encoded]]:
        """set -> the rows of a part, each cut, if it has to be, beside its own demonstrations."""
        fronts, own = self.fronts(part, seed), self.bench.splits.parts()[part]
        free = self.bench.encoded(part, behind=self._end, room=None, task=self.task)
        given = [own[place if one.index is None else one.index] for place, one in enumerate(free)]
        return [self._behind(one, given, free, train=part == "train") for one in fronts]

    def drawn_now(self, chosen: Sequence[int]) -> list[Encoded]:
        """Training rows behind demonstrations drawn by torch's generator, which a resumed run goes on with."""
        import torch

        random = Random(int(torch.randint(2**62, ())))
        fronts = [self._tokens(sets_of(self.demos, self.bench, "train", index, random)[0]) for index in chosen]
        bench, some = self.bench, [self.bench.splits.train[index] for index in chosen]
        free = self.task.encode(some, bench.tokenizer, model_kind=bench.kind, behind=self._end, train=True, room=None)
        return self._behind(fronts, some, free, train=True)

    def priors(self, part: str, seed: int) -> Tensor:
        """(sets, rows, labels): what the model answers to inputs without content behind each set."""
        from tunescope.tasks.answers import calibration, ensemble

        bench, fronts = self.bench, self.fronts(part, seed)
        left = self.room(fronts)
        asked = calibration.contentless(
            labelled(self.task), bench.tokenizer, model_kind=bench.kind, behind=self._end, room=left
        )
        return ensemble.priors(labelled(self.task), bench.model, fronts, asked, bench.tokenizer)

    def room(self, fronts: Sequence[Sequence[Ids]]) -> int | None:
        from tunescope.trial.bench import room

        return room(self.bench, self.taken + max(len(front) for one in fronts for front in one))

    def _behind(self, fronts: Sequence[Ids], given: Rows, free: Sequence[Encoded], *, train: bool) -> list[Encoded]:
        """Each row behind its front. free: the rows as long as they are; the task cuts what has too little room."""
        from tunescope.tasks.task import with_front

        bench, made = self.bench, []
        for front, row, one in zip(fronts, given, free, strict=True):
            left = self.room([[front]])
            if left is not None and len(one.input_ids) + self._written(one) > left:
                (own,) = self.task.encode(
                    [row], bench.tokenizer, model_kind=bench.kind, behind=self._end, train=train, room=left
                )
                one = replace(one, input_ids=own.input_ids, cut=own.cut, slot=own.slot)
            made.append(with_front(front, one))
        return made

    def _written(self, row: Encoded) -> int:
        """Tokens of an answer, at most or more."""
        known = (getattr(self.task, name, None) or 0 for name in ("max_new_tokens", "step_tokens"))
        return max(len(row.target_ids), sum(known) + LEAD)

    def _tokens(self, rows: Set) -> Ids:
        from tunescope.methods.contexts.text import token_ids, words_before
        from tunescope.tasks.prompts.templates import ids, kept_end

        tokenizer = self.bench.tokenizer
        if self.front is None:
            return tuple(token_ids(tokenizer, text(self.bench, self.task, rows)))
        end, shown = kept_end(tokenizer, self.front), solved(self.bench, self.task, rows)
        before, whole = ids(tokenizer, [end])[0], tuple(words_before(tokenizer, end + shown))
        return whole[len(before) :] if whole[: len(before)] == before else tuple(words_before(tokenizer, shown))

    @property
    def _end(self) -> str:
        """What a query stands behind: a solved row, any of which ends alike."""
        return solved(self.bench, self.task, (0,))


def passes(demos: Demos) -> int:
    """Times that the model reads a query to answer it, inputs without content among them."""
    from tunescope.tasks.answers.calibration import CONTENT_FREE

    return demos.sets * (1 + demos.calibrate * len(CONTENT_FREE))
