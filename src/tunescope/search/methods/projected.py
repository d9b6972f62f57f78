"""A trained soft prompt said in words: each virtual token's nearest allowed token, and what that costs in score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tunescope.attachment.artifact_folder import load
from tunescope.attachment.context_keys import embedder
from tunescope.data import scores
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.soft import Soft
from tunescope.models.anatomy import anatomy
from tunescope.search.apply import stats_behind, stats_of
from tunescope.search.frame import frame
from tunescope.search.loop import CHANGED
from tunescope.search.methods._nearest import By, nearest
from tunescope.search.objective import check_answers
from tunescope.search.search import Found, Point, Say, Search, contents
from tunescope.search.vocabulary import vocabulary
from tunescope.trial.bench import Bench


@dataclass(frozen=True)
class Projected(Search):
    """The nearest tokens of a saved soft prompt.

    The trace has the soft prompt's own score on all development rows, then that of the words. What is lost between
    the two, this way of saying it in words loses; another may lose less (pez looks for one). A soft prompt stands in
    front of the tokenizer's start token, and words behind it.

    artifact: the folder of the soft prompt, such as RUN/best. nearest, ban: as in pez.
    """

    artifact: str = ""
    nearest: By = "cosine"
    ban: tuple[str, ...] = ()

    def reads(self) -> Mapping[str, str]:
        return contents(self.artifact)

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        check_answers(bench)
        soft = self._soft()
        count = len(bench.encoded("dev", room=None))
        if passes < 2 * count:
            raise UserError(f"{passes} passes are too few: it scores {count} development rows twice.")
        words = vocabulary(bench.tokenizer, len(anatomy(bench.model).table.weight), self.ban, frame(bench))
        own = _metric(bench, stats_behind(bench, soft, "dev"))
        table, rows = embedder(bench.model)(torch.tensor(words.ids)), soft.tensors["embeddings"]
        places = nearest(table.to(rows.dtype), self.nearest)(rows.to(table.device))
        ids = tuple(words.ids[int(place)] for place in places)
        settled = words.settled(ids)
        if settled is None:
            raise UserError(f"the tokens nearest to {soft.spec} cannot be written as text that comes back to tokens.")
        text, front = settled
        dev = _metric(bench, stats_of(bench, text, "dev"))
        say(f"the soft prompt itself {own:.3f}, its nearest tokens {dev:.3f}: {text}")
        trace = (Point(count, f"{soft.spec} itself", own), Point(2 * count, text, dev))
        counts = {CHANGED: 1} if front != words.whole(ids) else {}
        return Found(
            text, getattr(bench.task, "template", ""), getattr(bench.task, "words", {}), dev, 2 * count, trace, counts
        )

    def _soft(self) -> Artifact:
        if not self.artifact:
            raise UserError("projected needs the folder of a saved soft prompt: projected:artifact=RUN/best")
        found = load(self.artifact)
        if len(found) != 1 or not isinstance(found[0].spec, Soft):
            told = ", ".join(str(one.spec) for one in found)
            raise UserError(f"{self.artifact} holds {told}, and projected reads one soft prompt alone.")
        soft: Artifact = found[0]
        return soft


def _metric(bench: Bench, stats: list[list[float]]) -> float:
    return scores.aggregate(bench.task.metric, stats)[bench.task.metric]
