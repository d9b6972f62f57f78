"""Classification by label words, or by a head on an encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from tunescope.data.row import every_row, line_of, or_filled, place, value
from tunescope.errors import UserError
from tunescope.system.label_pairs import typed
from tunescope.system.option import Option
from tunescope.tasks.answers.shares import highest
from tunescope.tasks.demonstration_rows import balanced
from tunescope.tasks.options import CHAT, SYSTEM, TEMPLATE, WORDS
from tunescope.tasks.prompts import chat as chats
from tunescope.tasks.prompts import history, label_words, mask, templates
from tunescope.tasks.prompts.demonstrations import Demonstration, joined
from tunescope.tasks.prompts.turns import Turns
from tunescope.tasks.task import Encoded, Labelled, Prediction, Rows

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class Classification(Labelled):
    """One of K labels a row.

    ``words`` maps each label to the word that stands for it; left empty, ``prepare`` takes the labels of the
    training rows, each its own word, sorted. ``by="words"`` compares log p(word | filled template), all its tokens
    counted; ``by="head"`` asks an encoder with a classification head. White space around labels and words goes.
    ``prior`` is what each label's probability is divided by before they are compared (`tasks.answers.calibration`).

    ``{mask}`` in the template is the place of the answer. A masked language model answers nowhere else, with one token
    (LM-BFF: Gao et al. 2021, section 4); T5 fills it as its first sentinel; on a decoder it can only end the template.
    """

    text: Annotated[str, Option("the field with the text (default: text).", ("--text-field", "--text"))] = "text"
    label: Annotated[str, Option("the field with the label (default: label).", ("--label-field", "--label"))] = "label"
    template: Annotated[str, TEMPLATE] = "{text}\nLabel:"
    chat: Annotated[bool, CHAT] = False
    system: Annotated[str, SYSTEM] = ""
    words: Annotated[Mapping[str, str], WORDS] = field(default_factory=dict)
    by: Annotated[
        str, Option("how an encoder answers: head (a new one, the default), or words at the template's {mask}.")
    ] = "words"
    prior: Mapping[str, float] = field(default_factory=dict)
    turns: Turns | None = None  # filled in by `prepare`, as are notes
    notes: tuple[str, ...] = ()

    metric = "accuracy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", label_words.stripped(self.words))
        chats.check_chat(self)
        if self.by not in ("words", "head"):
            raise UserError(f"Classification(by={self.by!r}): allowed are 'words' and 'head'. Type: by='words'")
        if self.by == "head" and mask.halves(self.template) is not None:
            raise UserError(f"Template {self.template!r} has {{mask}}, which by='head' has no use for. Take it out.")
        if self.prior and (set(self.prior) != set(self.words) or min(self.prior.values()) <= 0 or self.by == "head"):
            raise UserError(
                f"Classification(prior={dict(self.prior)}): a prior is a number above 0 for each label word, of "
                f"{_some(list(self.words)) or 'no labels yet'}; a head has none."
            )
        if self.label in self.fields():
            raise UserError(
                f"Template {self.template!r} contains the label's own field {{{self.label}}}, which would "
                "give the answer away. Take it out; the label word is added behind the template."
            )

    @classmethod
    def usual(cls, given: Mapping[str, Any], model_kind: str) -> dict[str, Any]:
        """A head on an encoder and words elsewhere, behind the text and what asks for them."""
        encoder = model_kind == "encoder"
        by = given.get("by", "head" if encoder else "words")
        end = "" if by == "head" or given.get("chat") else " It was {mask}." if encoder else "\nLabel:"
        return {"by": by, "template": f"{{{given.get('text', 'text')}}}" + end}

    @property
    def labels(self) -> tuple[str, ...]:
        if not self.words:
            raise UserError(
                "Classification does not know its labels yet. Type: task = task.prepare({'train': rows}, "
                "tokenizer, model_kind=...), or give words={'LABEL': 'WORD', ...}"
            )
        if len(self.words) == 1:
            raise UserError(f"Classification has one label only, '{next(iter(self.words))}'. Give at least two.")
        return tuple(self.words)

    @property
    def needs_head(self) -> int | None:
        return len(self.labels) if self.by == "head" else None

    @property
    def in_words(self) -> bool:
        return self.by == "words"

    @property
    def begins(self) -> str:
        return chats.head_of(self) or ""

    def fields(self) -> tuple[str, ...]:
        return mask.fields(self.template)

    def prepare(
        self, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase, *, model_kind: str
    ) -> Classification:
        self._check_kind(model_kind)
        found = {name: self._first_places(rows) for name, rows in splits.items()}
        train = found["train"]
        if len(train) < 2:
            raise UserError(
                f"The training rows have one label only, '{next(iter(train), '')}'. "
                f"Classification needs at least two; is '{self.label}' the right field? Type: --label FIELD"
            )
        for name, labels in found.items():
            for label, where in labels.items():
                if label not in train:
                    raise UserError(
                        f"{where}: label '{label}' of the {name} rows does not occur in the training rows, "
                        f"which have {_some(sorted(train))}. Add training rows of it, or take it out."
                    )
        turns = chats.in_turns(self, tokenizer, model_kind)
        told = history.checked(replace(self, turns=turns), splits, tokenizer)
        words = self.words or dict(zip(train, train, strict=True))
        task = replace(self, turns=turns, words=dict(sorted(words.items())))  # as a run's file keeps them
        for label, where in train.items():
            task._index(label, where)
        tokens = task.word_ids(tokenizer, model_kind)
        template = self.template
        if model_kind == "decoder" and turns is None:
            template = self._place(tokenizer, model_kind).template
        return replace(task, template=template, notes=(*chats.notes_of(turns), *told, *label_words.notes(tokens)))

    def encode(
        self,
        rows: Rows,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model_kind: str,
        behind: str | None = None,
        train: bool = False,
        room: int | None = None,
    ) -> list[Encoded]:
        self._check_kind(model_kind)
        targets, at = list(self.word_ids(tokenizer, model_kind).values()), self._place(tokenizer, model_kind)
        fed = max(map(len, targets)) - 1 if model_kind == "decoder" else 0  # the last token is never an input
        values = [chats.values_of(self, {n: value(row, n, i) for n in self.fields()}) for i, row in enumerate(rows)]
        places = [place(row, index) for index, row in enumerate(rows)]
        layout = templates.Layout(at.template, self.text, model_kind, behind, chats.head_of(self))
        before = history.earlier(self, rows)
        filled = layout.encode(tokenizer, values, [None if room is None else room - fed] * len(rows), places, before)
        masked = model_kind == "encoder" and bool(targets)
        slots = mask.slots(at, self.text, values, filled, tokenizer) if masked else None
        encoded = []
        for index, (row, (ids, cut)) in enumerate(zip(rows, filled, strict=True)):
            label = self._index(name := self.label_of(row, index), places[index])
            encoded.append(
                Encoded(
                    row=line_of(row, index),
                    index=index,
                    input_ids=ids,
                    target_ids=targets[label] if targets else (),
                    label=label,
                    references=(name,),
                    source="\t".join([*values[index].values(), *before[index]]),
                    cut=cut,
                    slot=None if slots is None else slots[index],
                    lead=at.lead,
                )
            )
        return encoded

    def as_question(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return or_filled(row, self.label, self.labels[0])

    def loss(self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
        from tunescope.tasks.answers import choices as answering

        words = self._words_of(model, tokenizer) if batch[0].slot is not None else []
        return answering.loss(model, batch, words, tokenizer)

    def row_losses(
        self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase
    ) -> Tensor:
        from tunescope.tasks.answers import choices as answering

        words = self._words_of(model, tokenizer) if batch[0].slot is not None else []
        return answering.losses(model, batch, words, tokenizer)

    def predict(
        self,
        model: PreTrainedModel,
        rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
    ) -> list[Prediction]:
        from tunescope.tasks.answers import choices as answering

        words = self._words_of(model, tokenizer)
        prior = [self.prior[label] for label in self.labels] if self.prior else None
        return self.answered(rows, answering.label_scores(model, rows, words, tokenizer, batch_size, prior))

    def answered(self, rows: Sequence[Encoded], scores: Tensor) -> list[Prediction]:
        """Each row answered with the label of its highest score, the first of equals. scores: (rows, labels), logs."""
        shares = scores.cpu().double().softmax(-1).tolist()
        return [
            Prediction(
                row.row,
                self.labels[choice],
                (float(choice == row.label), float(row.label or 0), float(choice)),
                shares=highest(dict(zip(self.labels, share, strict=True)), self.labels[choice]),
            )
            for row, choice, share in zip(rows, scores.argmax(-1).tolist(), shares, strict=True)
        ]

    def demonstrations(self, rows: Rows, k: int, seed: int) -> str:
        """The text of `demonstrated`."""
        return joined(self.demonstrated(rows, k, seed))

    def demonstrated(self, rows: Rows, k: int, seed: int) -> list[Demonstration]:
        labels = [self.label_of(row, index) for index, row in enumerate(rows)]
        return [self._solved(rows[index], labels[index]) for index in balanced(labels, k, seed)]

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "metric": self.metric,
            "higher_is_better": True,
            "chance": 1 / len(self.labels),
            "labels": list(self.labels),
            "words": dict(self.words) if self.by == "words" else None,
            "by": self.by,
            **({"prior": dict(self.prior)} if self.prior else {}),
            "fields": list(self.fields()),
            "label": self.label,
            "template": self.template,
            **chats.described(self),
            "notes": list(self.notes),
        }

    def label_of(self, row: Mapping[str, Any], index: int) -> str:
        """The row's label as text, without white space around it."""
        label = value(row, self.label, index).strip()
        if not label:
            raise UserError(f"{place(row, index)}: '{self.label}' is empty. Fill it in or delete the row.")
        return label

    def counts(self, rows: Rows) -> dict[str, int]:
        return dict(Counter(self.label_of(row, index) for index, row in enumerate(rows)))

    def _first_places(self, rows: Rows) -> dict[str, str]:
        """Label -> where it first occurs."""
        places: dict[str, str] = {}
        for index, label in enumerate(every_row(rows, self.label_of)):
            places.setdefault(label, place(rows[index], index))
        return places

    def word_ids(self, tokenizer: PreTrainedTokenizerBase, model_kind: str) -> dict[str, templates.Ids]:
        """Label -> token ids of its word, in the labels' order; {} where a head answers."""
        if self.by == "head":
            return {}
        words = {label: self.words[label] for label in self.labels}
        return label_words.word_tokens(tokenizer, chats.asked(self), words, model_kind, chats.space_of(self))

    def _words_of(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[templates.Ids]:
        from tunescope.models.anatomy import anatomy

        return list(self.word_ids(tokenizer, anatomy(model).kind).values())

    def _place(self, tokenizer: PreTrainedTokenizerBase, model_kind: str) -> mask.Place:
        if self.by == "head":
            return mask.Place(self.template, self.template)
        return mask.place(chats.asked(self), tokenizer, model_kind)

    def _solved(self, row: Mapping[str, Any], label: str) -> Demonstration:
        values = {name: value(row, name, 0) for name in self.fields()}
        return history.solved(self, row, values, self.words.get(label, label), label)

    def _index(self, label: str, where: str) -> int:
        if label not in (self.words or self.labels):
            named = dict(list(self.words.items())[:3]) | {label: "WORD"}
            raise UserError(
                f"{where}: label '{label}' is not among the labels: {_some(list(self.words))}. "
                f"Correct it, or name its word beside the others: {typed(named)}"
            )
        return list(self.words).index(label)

    def _check_kind(self, model_kind: str) -> None:
        if self.by == "head" and model_kind != "encoder":
            raise UserError(f"by='head' is for encoders, and this model is a {model_kind}. Type: by='words'")


def _some(labels: Sequence[str], most: int = 10) -> str:
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "")
