"""Label words found in the model's vocabulary (LM-BFF: Gao et al. 2021, arXiv:2012.15723, section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from tunescope.errors import UserError
from tunescope.search.finalists import Candidate, settled, settled_by_tuning, tuning_of
from tunescope.search.search import Found, Point, Say, Search
from tunescope.tasks.task import labelled

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.search.methods._assignment import Assignment
    from tunescope.tasks.task import Encoded
    from tunescope.trial.bench import Bench

CITATION = """\
@inproceedings{gao2021lmbff,
  author = {Gao, Tianyu and Fisch, Adam and Chen, Danqi},
  title = {Making Pre-trained Language Models Better Few-shot Learners},
  booktitle = {ACL},
  year = {2021},
  eprint = {2012.15723},
  archivePrefix = {arXiv},
}
"""


BATCH = 32


@dataclass(frozen=True)
class LabelWords(Search):
    """For each class a word, all different, at the task's own template; the text and the template stay as they are.
    In a chat a word is what the assistant says.

    shortlist: for each class, the words of the highest mean log-probability over its training rows. Of the words on the
    shortlists those `keep` assignments are kept that get most training rows right without training, and of these the
    one that gets most development rows right is found; of equals the one that did better in training
    (`_assignment` says how). rows: training rows of each class that are looked at, at most, drawn by the seed.

    tune: with so many steps of full tuning each of the `finalists` (5) best on the development rows is tried, and the
    one that is best there after it is found, as in the paper; 0, what is found is best for the model as it is.

    Every row goes forward once, and in tuning as often as it is trained on or scored (see `finalists`).
    """

    names_labels: ClassVar[bool] = True
    in_front: ClassVar[bool] = False

    shortlist: int = 100
    keep: int = 20
    rows: int = 100
    tune: int = 0
    finalists: int | None = None

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        import torch

        from tunescope.search.methods._assignment import WordChoice, assignments
        from tunescope.trial.bench import room

        self._check(bench)
        tuning = tuning_of("label_words", self.tune, self.finalists, ("keep", self.keep))
        words, n_classes = self._words(bench), len(labelled(bench.task).labels)
        train, dev = (bench.encoded(part, room=room(bench, 0)) for part in ("train", "dev"))
        if tuning:
            passes = tuning.left(bench, passes, n_classes + len(dev))
        train = _drawn(train, n_classes, self._per_class(n_classes, len(dev), passes), seed)
        columns = list(words)
        scores = _scores(bench, train, columns)
        labels = torch.tensor([row.label for row in train])
        empty = [name for at, name in enumerate(labelled(bench.task).labels) if not (labels == at).any()]
        if empty:
            raise UserError(f"{self}: no training row is labelled {', '.join(empty)}, and a word is found from rows.")
        shortlists = tuple(self._shortlist(scores[labels == label]) for label in range(n_classes))
        say(f"{len(train)} training rows read; {len(set().union(*shortlists))} of {len(words)} words on the shortlists")
        kept = assignments(WordChoice(scores, labels, shortlists), self.keep, seed)
        on_dev, found = _scores(bench, dev, columns), []
        for one in kept:
            named = dict(zip(labelled(bench.task).labels, (words[columns[at]] for at in one.columns), strict=True))
            shown = ",".join(f"{label}={word}" for label, word in named.items())
            found.append(Candidate(bench.task.template, named, shown, _accuracy(on_dev, dev, one)))
        used = len(train) + len(dev)
        best = settled(found, used, [Point(used, one.shown, one.dev) for one in found])
        say(f"{_shown(best)}: {best.dev:.3f} on dev, of {len(found)} assignments that do best in training")
        return settled_by_tuning(bench, found, best, tuning, seed, say) if tuning else best

    def _check(self, bench: Bench) -> None:
        if not bench.task.in_words:
            raise UserError("label_words looks for the words of a classification that is answered in words: --by words")
        for name in ("shortlist", "keep", "rows"):
            if getattr(self, name) < 1:
                raise UserError(f"{self}: {name} must be at least 1.")

    def _words(self, bench: Bench) -> dict[int, str]:
        """Token -> word, of which each class gets one of its own."""
        from tunescope.search.vocabulary import whole_words
        from tunescope.tasks.prompts import chat

        task: Any = bench.task
        words, n_classes = (
            whole_words(bench.tokenizer, chat.asked(task), bench.kind, chat.space_of(task)),
            len(task.labels),
        )
        if len(words) < n_classes:
            raise UserError(
                f"{self}: {n_classes} classes need as many different words, and this vocabulary has {len(words)} whole "
                "ones. Name them yourself: --words LABEL=WORD,..."
            )
        if self.shortlist < n_classes:
            raise UserError(
                f"{self}: {n_classes} classes need as many different words, and each shortlist has {self.shortlist}. "
                f"Type: label_words:shortlist={n_classes}"
            )
        return words

    def _per_class(self, n_classes: int, n_dev: int, passes: int) -> int:
        """Training rows of each class that the passes allow beside one for each development row."""
        allowed = min(self.rows, (passes - n_dev) // n_classes)
        if allowed < 1:
            raise UserError(
                f"label_words reads each of {n_dev} development rows once and a training row of each of {n_classes} "
                f"classes at least: {passes} passes are too few, give {n_dev + n_classes} or more."
            )
        return allowed

    def _shortlist(self, scores: Tensor) -> tuple[int, ...]:
        """Columns of the highest mean, highest first, of equals the earlier token."""
        order = scores.mean(0).sort(descending=True, stable=True).indices
        return tuple(order[: self.shortlist].tolist())


def _shown(found: Found) -> str:
    return ",".join(f"{label}={word}" for label, word in found.words.items())


def _drawn(rows: Sequence[Encoded], n_classes: int, per_class: int, seed: int) -> list[Encoded]:
    """At most so many rows of each class, in their order."""
    draw, chosen = Random(seed), []
    for label in range(n_classes):
        members = [index for index, row in enumerate(rows) if row.label == label]
        chosen += draw.sample(members, min(per_class, len(members)))
    return [rows[index] for index in sorted(chosen)]


def _scores(bench: Bench, rows: Sequence[Encoded], tokens: Sequence[int]) -> Tensor:
    """(rows, tokens) log-probabilities at the answer's place, float64; nothing else of the vocabulary is kept.

    Raises UserError for scores that are no numbers, of a row without padding too.
    """
    import torch

    from tunescope.tasks.answers.batch_trial import takes_left_padding
    from tunescope.tasks.answers.batches import in_batches
    from tunescope.tasks.answers.likelihood import first_token_scores
    from tunescope.tasks.answers.not_numbers import without_lost

    def work(some: list[int]) -> Tensor:
        scores = first_token_scores(bench.model, [rows[index] for index in some], bench.tokenizer)
        return scores[:, list(tokens)].cpu().double()

    lengths = [len(row.input_ids) for row in rows]
    alike = not takes_left_padding(bench.model, lengths, BATCH)
    found = in_batches(bench.model, lengths, BATCH, work, deal=False, alike=alike)
    return torch.stack(without_lost(bench.model, rows, found, BATCH, work, deal=False))


def _accuracy(scores: Tensor, rows: Sequence[Encoded], one: Assignment) -> float:
    choices: list[int] = scores[:, list(one.columns)].argmax(1).tolist()
    return sum(choice == row.label for choice, row in zip(choices, rows, strict=True)) / len(rows)
