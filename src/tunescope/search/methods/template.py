"""Templates written by a T5-style model around the label words (LM-BFF: Gao et al. 2021, arXiv:2012.15723, 5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from tunescope.data.row import place, value
from tunescope.errors import UserError
from tunescope.models.load import load_model
from tunescope.search.finalists import Candidate, settled, settled_by_tuning, tuning_of
from tunescope.search.search import Found, Point, Say, Search, contents
from tunescope.tasks.task import changed, labelled

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tunescope.search.methods._layouts import Layout
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


LONGEST = 512  # tokens of a text that the writing model reads; T5 was pretrained on so many


@dataclass(frozen=True)
class Template(Search):
    """The task's fields with words between them, in place of its template; its label words and the text stay.

    generator: the folder or name of the model that writes; "" is the model itself, where it is of the T5 kind. beam:
    templates kept, split evenly between the layouts. most: tokens of a template's own words. rows: training rows of
    each class that are written for, at most, drawn by the seed. forbid: texts of tokens that are never written.

    tune: with so many steps of full tuning each of the `finalists` (5) best on the development rows is tried, and the
    one that is best there after it is found, as in the paper; 0, what is found is best for the model as it is.

    What is written is scored on all rows together (see `_infilling`), then each template is tried on the development
    rows with the model as it is; of equals the one that was likelier to be written comes first. The passes are those of
    the model that is asked: one a development row and template, and those of tuning (see `finalists`). The writing
    model's own are not counted.
    """

    in_front: ClassVar[bool] = False

    generator: str = ""
    beam: int = 20
    most: int = 20
    rows: int = 16
    forbid: tuple[str, ...] = ("..",)
    tune: int = 0
    finalists: int | None = None

    def reads(self) -> Mapping[str, str]:
        return contents(self.generator)

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        self._check(bench)
        tuning, n_dev = tuning_of("template", self.tune, self.finalists, ("beam", self.beam)), len(bench.splits.dev)
        if tuning:
            passes = tuning.left(bench, passes, n_dev)
        if passes < n_dev:
            raise UserError(
                f"template tries each template on all {n_dev} development rows: {passes} passes are too few, give "
                f"{n_dev} or more."
            )
        found = self._tried(bench, self._written(bench, seed, say), passes // n_dev, say)
        trace = [Point((number + 1) * n_dev, one.shown, one.dev) for number, one in enumerate(found)]
        best = settled(found, len(found) * n_dev, trace)
        say(f"{best.template!r}: {best.dev:.3f} on dev, the best of {len(found)}")
        return settled_by_tuning(bench, found, best, tuning, seed, say) if tuning else best

    def _tried(self, bench: Bench, templates: Sequence[str], most: int, say: Say) -> list[Candidate]:
        """The first `most` templates that can be used, with their scores on the development rows."""
        found: list[Candidate] = []
        refused: list[str] = []
        for template in templates:
            if len(found) == most:
                say(f"the passes are used up: {len(templates) - most - len(refused)} templates were not tried")
                break
            try:
                found.append(Candidate(template, labelled(bench.task).words, template, _score(bench, template)))
            except UserError as problem:  # a label word may be one token behind a space and several without
                refused.append(f"{template!r}: {problem}")
        if refused:
            say(f"{len(refused)} of {len(templates)} templates cannot be used; the first, {refused[0]}")
        if not found:
            raise UserError(f"{self} wrote no template that can be used" + (f"; {refused[0]}" if refused else "."))
        return found

    def _check(self, bench: Bench) -> None:
        if not bench.task.in_words:
            raise UserError("template looks for a template of a classification that is answered in words: --by words")
        for name in ("beam", "most", "rows"):
            if getattr(self, name) < 1:
                raise UserError(f"{self}: {name} must be at least 1.")

    def _written(self, bench: Bench, seed: int, say: Say) -> list[str]:
        """The templates, likeliest first, each once."""
        from tunescope.search.methods._infilling import Allowed, filled, sentinels
        from tunescope.search.methods._layouts import layouts, spoken, text_tokens

        model, tokenizer = self._generator(bench)
        every = layouts(bench.task.fields(), ends=not _has_mask(bench))
        rows = _drawn(bench, self.rows, seed)
        text = text_tokens(tokenizer, self.forbid)
        found: list[tuple[float, str]] = []
        for layout in every:
            marks = sentinels(tokenizer, layout.n_spans + 1)
            allowed = Allowed(marks, int(tokenizer.eos_token_id), text, self.most)
            texts = _texts(bench, layout, rows, tokenizer)
            for one in filled(model, tokenizer, texts, allowed, max(1, self.beam // len(every))):
                found.append((-one.score, layout.template([spoken(tokenizer, span) for span in one.spans])))
        marks_of_ours = [mark for mark in (bench.tokenizer.mask_token, "<extra_id_") if mark]
        usable = [template for _, template in sorted(found) if not any(mark in template for mark in marks_of_ours)]
        unique = list(dict.fromkeys(usable))
        say(f"{len(unique)} templates written for {len(rows)} training rows, in {len(every)} layouts")
        return unique

    def _generator(self, bench: Bench) -> tuple[Any, Any]:
        from tunescope.search.methods._infilling import sentinels

        if not self.generator and bench.kind != "encoder-decoder":
            raise UserError(
                f"An {bench.kind} writes no templates: name a model of the T5 kind, as in template:generator=FOLDER"
                if bench.kind == "encoder"
                else "A decoder fills no spans: name a model of the T5 kind, as in template:generator=FOLDER"
            )
        model, tokenizer = load_model(self.generator) if self.generator else (bench.model, bench.tokenizer)
        if not model.config.is_encoder_decoder:
            raise UserError(f"{self.generator} is no encoder-decoder, and only one of the T5 kind fills spans.")
        sentinels(tokenizer, 3)
        return (model.to(bench.device) if self.generator else model).eval(), tokenizer


def _has_mask(bench: Bench) -> bool:
    """Whether the model answers at a {mask}: an encoder, or what has T5's sentinels."""
    from tunescope.tasks.prompts.mask import SENTINEL

    if bench.kind != "encoder-decoder":
        return bench.kind == "encoder"
    return bench.tokenizer.convert_tokens_to_ids(SENTINEL) not in (None, bench.tokenizer.unk_token_id)


def _drawn(bench: Bench, per_class: int, seed: int) -> list[Any]:
    """At most so many training rows of each class, in their order."""
    rows, draw = bench.splits.train, Random(seed)
    labels = [labelled(bench.task).label_of(row, index) for index, row in enumerate(rows)]
    chosen: list[int] = []
    for label in labelled(bench.task).labels:
        members = [index for index, one in enumerate(labels) if one == label]
        chosen += draw.sample(members, min(per_class, len(members)))
    return [rows[index] for index in sorted(chosen)]


def _texts(
    bench: Bench, layout: Layout, rows: Sequence[Any], tokenizer: PreTrainedTokenizerBase
) -> list[tuple[int, ...]]:
    """What the writing model reads for each row: its fields and its label word around the spans, cut to LONGEST."""
    from tunescope.tasks.prompts import templates

    task, found = labelled(bench.task), []
    for index, row in enumerate(rows):
        template = layout.asked(task.words[task.label_of(row, index)])
        values = {name: value(row, name, index) for name in task.fields()}
        made = templates.Layout(template, task.text, "encoder-decoder")
        [(ids, _)] = made.encode(tokenizer, [values], [LONGEST], [place(row, index)])
        found.append(ids)
    return found


def _score(bench: Bench, template: str) -> float:
    from tunescope.data import scores
    from tunescope.trial.bench import room

    task = changed(bench.task, template=template)
    items = task.encode(bench.splits.dev, bench.tokenizer, model_kind=bench.kind, room=room(bench, 0))
    stats = [one.stats for one in task.predict(bench.model, items, bench.tokenizer)]
    return scores.aggregate(task.metric, stats)[task.metric]
