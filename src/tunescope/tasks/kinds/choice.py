"""Choice: a question with choices of its own, of which the most probable one is the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tunescope.data.row import every_row, line_of, or_filled, place, value
from tunescope.errors import UserError
from tunescope.system.option import Option
from tunescope.tasks.demonstration_rows import uniform
from tunescope.tasks.options import CHAT, INPUT, SYSTEM, TEMPLATE
from tunescope.tasks.prompts import chat as chats
from tunescope.tasks.prompts import history, templates
from tunescope.tasks.prompts.turns import Turns
from tunescope.tasks.task import Encoded, Prediction, Rows, Task

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MUCH = 2  # times the tokens of a row's shortest choice, and so many more: longer ones start behind it
MANY = 10  # one row of so many, or more, has to be so: any data has a few


@dataclass(frozen=True, kw_only=True)
class Posed(Encoded):
    """A question, tokenised, with its choices as texts and as tokens."""

    texts: tuple[str, ...]
    tokens: tuple[templates.Ids, ...]


@dataclass(frozen=True, kw_only=True)
class Choice(Task):
    """One of the choices that a row brings along; what differs from row to row can be no label.

    The answer is the choice of the highest log p(choice | filled template), all of its tokens counted, as
    lm-evaluation-harness has it for `acc`; its `acc_norm` divides that by the choice's characters. Trained on is the
    right one alone.

    choices: the field with the list of texts. answer: the field with the right one, as text or as its number from 0.
    """

    input: Annotated[str, INPUT] = "input"
    choices: Annotated[
        str, Option("for {kinds}, the field with the list of choices (default: choices).", ("--choices-field",))
    ] = "choices"
    answer: Annotated[
        str,
        Option(
            "for {kinds}, the field with the right one, or its number from 0 (default: answer).", ("--answer-field",)
        ),
    ] = "answer"
    template: Annotated[str, TEMPLATE] = "{input}\n"
    chat: Annotated[bool, CHAT] = False
    system: Annotated[str, SYSTEM] = ""
    chance: float | None = None  # filled in by `prepare`, as are turns and notes
    turns: Turns | None = None
    notes: tuple[str, ...] = ()

    about: ClassVar[str] = "one of the choices that a row brings along"
    writes: ClassVar[bool] = True

    metric = "exact_match"
    max_new_tokens = None

    def __post_init__(self) -> None:
        chats.check_chat(self)
        for name in (self.choices, self.answer):
            if name in self.fields():
                raise UserError(f"Template {self.template!r} contains the field {{{name}}}: the choice follows it.")

    @classmethod
    def usual(cls, given: Mapping[str, Any], model_kind: str) -> dict[str, Any]:
        return {"template": f"{{{given.get('input', 'input')}}}" + ("" if given.get("chat") else "\n")}

    @property
    def needs_head(self) -> int | None:
        return None

    @property
    def begins(self) -> str:
        return chats.head_of(self) or ""

    def fields(self) -> tuple[str, ...]:
        return templates.fields(self.template)

    def question(self) -> tuple[str, ...]:
        """The choices too: "Which of these is right?" is another question with each."""
        return *self.fields(), self.choices

    def prepare(self, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase, *, model_kind: str) -> Choice:
        """With what guessing gets on the test rows, or on all where there are none, and how many rows, of all parts,
        have equal choices."""
        _check_kind(model_kind)
        task = replace(self, turns=chats.in_turns(self, tokenizer, model_kind))
        told = history.checked(task, splits, tokenizer)
        read = [found for rows in splits.values() for found in every_row(rows, self._read)]
        places = [place(row, index) for rows in splits.values() for index, row in enumerate(rows)]
        tokens = task._tokens(tokenizer, [texts for texts, _ in read], model_kind, places)
        of_tokens = [*_alike(tokens), *_unequal(tokens, [right for _, right in read])]
        scored = [self._read(row, index) for index, row in enumerate(splits.get("test", ()))] or read
        chance = sum(1 / len(texts) for texts, _ in scored) / len(scored)
        return replace(task, chance=chance, notes=(*chats.notes_of(task.turns), *told, *of_tokens))

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
        """One item a row, also where inputs are equal: their choices need not be."""
        _check_kind(model_kind)
        read = [self._read(row, index) for index, row in enumerate(rows)]
        values = [
            chats.values_of(self, {n: value(row, n, index) for n in self.fields()}) for index, row in enumerate(rows)
        ]
        places = [place(row, index) for index, row in enumerate(rows)]
        tokens = self._tokens(tokenizer, [texts for texts, _ in read], model_kind, places)
        fed = [max(map(len, own)) - 1 if model_kind == "decoder" else 0 for own in tokens]
        rooms = [None if room is None else room - one for one in fed]
        layout = templates.Layout(chats.asked(self), self.input, model_kind, behind, chats.head_of(self))
        before = history.earlier(self, rows)
        filled = layout.encode(tokenizer, values, rooms, places, before)
        lead = templates.lead(tokenizer, model_kind)
        return [
            Posed(
                row=line_of(row, index),
                index=index,
                input_ids=ids,
                target_ids=tokens[index][right],
                label=right,
                references=(texts[right],),
                source="\t".join([*values[index].values(), *before[index]]),
                cut=cut,
                lead=lead,
                texts=texts,
                tokens=tokens[index],
            )
            for index, (row, (texts, right), (ids, cut)) in enumerate(zip(rows, read, filled, strict=True))
        ]

    def as_question(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return or_filled(row, self.answer, 0)

    def loss(self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
        from tunescope.tasks.answers import choices

        return choices.loss(model, batch, [], tokenizer)

    def row_losses(
        self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase
    ) -> Tensor:
        from tunescope.tasks.answers import choices

        return choices.losses(model, batch, [], tokenizer)

    def predict(
        self,
        model: PreTrainedModel,
        rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
    ) -> list[Prediction]:
        """The text of the most probable choice, the first of equals."""
        from tunescope.data.scores import statistics
        from tunescope.tasks.answers import choices

        posed = [row for row in rows if isinstance(row, Posed)]
        asked = [replace(row, target_ids=own) for row in posed for own in row.tokens]
        scores = iter(choices.own_scores(model, asked, tokenizer, batch_size).tolist())
        every = [[next(scores) for _ in row.tokens] for row in posed]
        texts = [row.texts[own.index(max(own))] for row, own in zip(posed, every, strict=True)]
        right = statistics(self.metric, texts, [row.references for row in posed])
        return [Prediction(row.row, text, own) for row, text, own in zip(posed, texts, right, strict=True)]

    def demonstrations(self, rows: Rows, k: int, seed: int) -> str:
        """``k`` random rows, each the filled template and its right choice."""
        return "".join(self._solved(rows[index], index) for index in uniform(len(rows), k, seed))

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "metric": self.metric,
            "higher_is_better": True,
            "chance": self.chance,
            "labels": None,
            "fields": list(self.fields()),
            "choices": self.choices,
            "answer": self.answer,
            "template": self.template,
            **chats.described(self),
            "compared": "the most probable of the row's choices with the right one",
            "notes": list(self.notes),
        }

    def _read(self, row: Mapping[str, Any], index: int) -> tuple[tuple[str, ...], int]:
        """The choices, and which of them is right, from 0."""
        found, right = row.get(self.choices), row.get(self.answer)
        where = place(row, index)
        if (
            not isinstance(found, list)
            or len(found) < 2
            or not all(isinstance(one, str) and one.strip() for one in found)
        ):
            raise UserError(
                f"{where}: '{self.choices}' is no list of two texts or more. Type: --choices-field FIELD, of rows as "
                '{"input": "...", "choices": ["...", "..."], "answer": 0}'
            )
        texts = tuple(one.strip() for one in found)
        if isinstance(right, str) and right.strip() in texts:
            return texts, texts.index(right.strip())
        if isinstance(right, str) and right.strip().isdecimal():  # as some files have it, such as HellaSwag's
            right = int(right)
        if isinstance(right, int) and not isinstance(right, bool) and 0 <= right < len(texts):
            return texts, right
        raise UserError(
            f"{where}: '{self.answer}' is {str(right)[:40]!r}, which is none of the {len(texts)} choices, nor the "
            f"number of one, from 0 to {len(texts) - 1}. Correct it."
        )

    def _tokens(
        self,
        tokenizer: PreTrainedTokenizerBase,
        texts: Sequence[Sequence[str]],
        model_kind: str,
        places: Sequence[str],
    ) -> list[tuple[templates.Ids, ...]]:
        """Of each row's choices, as they go on from the template, or begin the decoder's text."""
        flat = [one for own in texts for one in own]
        if model_kind == "decoder":
            made = iter(templates.continuations(tokenizer, chats.asked(self), flat, chats.space_of(self)))
        else:
            made = iter(templates.ids(tokenizer, flat, target=True))
        found = [tuple(next(made) for _ in own) for own in texts]
        for where, own in zip(places, found, strict=True):
            if not all(own):
                raise UserError(f"{where}: one of the choices has no tokens. Correct the row.")
        return found

    def _solved(self, row: Mapping[str, Any], index: int) -> str:
        texts, right = self._read(row, index)
        values = {name: value(row, name, index) for name in self.fields()}
        return str(history.solved(self, row, values, texts[right]))


def _alike(tokens: Sequence[Sequence[templates.Ids]]) -> list[str]:
    """A note on rows with choices that cannot be told apart."""
    alike = sum(len(set(own)) < len(own) for own in tokens)
    same = f"{alike:,} of {len(tokens):,} rows have two choices of the same tokens, of which the first is taken."
    return [same] if alike else []


def _unequal(tokens: Sequence[Sequence[templates.Ids]], right: Sequence[int]) -> list[str]:
    """A note on rows whose choices differ much in their number of tokens, and how often that pulls the right way."""
    sizes = [([len(one) for one in own], place) for own, place in zip(tokens, right, strict=True)]
    far = [(own, place) for own, place in sizes if max(own) >= max(MUCH * min(own), MUCH + min(own))]
    if not far or MANY * len(far) < len(tokens):
        return []
    short, long = (sum(own[place] == end(own) for own, place in far) for end in (min, max))
    return [
        "A choice's score is the sum of the log-probabilities of all its tokens, so longer choices start at a "
        f"disadvantage: in {len(far):,} of {len(tokens):,} rows the longest has at least {MUCH} times the "
        f"tokens of the shortest, and {MUCH} more. Of these the right choice is a shortest one in {short:,}, and a "
        f"longest in {long:,}."
    ]


def _check_kind(model_kind: str) -> None:
    if model_kind == "encoder":
        raise UserError("Choices are continued with, and this model is an encoder: take a decoder.")
