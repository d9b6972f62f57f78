"""Generation: an input, a text to be written; decoded and compared with all references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tunescope.data.metric import find_metric
from tunescope.data.row import every_row, line_of, or_filled, place, value
from tunescope.errors import UserError
from tunescope.system.option import Option
from tunescope.tasks.answers import blank_lines
from tunescope.tasks.answers.beam_search import BeamSearch
from tunescope.tasks.answers.extract import BLANK_LINE
from tunescope.tasks.answers.metric_names import check_metrics
from tunescope.tasks.demonstration_rows import uniform
from tunescope.tasks.options import CHAT, INPUT, LOWERCASE, MAX_NEW_TOKENS, SYSTEM, TARGET, TEMPLATE
from tunescope.tasks.prompts import chat as chats
from tunescope.tasks.prompts import history, languages, templates
from tunescope.tasks.prompts.turns import Turns
from tunescope.tasks.task import Encoded, Prediction, Rows, Task

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tunescope.tasks.answers.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Generation(Task):
    """A target text for each input.

    Rows with equal inputs are one input with several references: each is a training example of its own, and
    in scoring the input is decoded once. ``max_new_tokens=None`` lets ``prepare`` take it from the training
    targets (their 99th percentile and a margin). ``lowercase`` ignores case in the metrics that leave the choice.

    metric: decides on learning rates and the verdict; a file of the folder `metrics`.
    also: further metrics, told of the test outputs.
    blank_ends: an answer ends at its first blank line, as a demonstration does: a model that was not tuned has
        learned no other end, and writes the next example. False, by ``prepare``, where a training target has one.
    beams, length_penalty, min_new_tokens, no_repeat_ngram: see `BeamSearch`.
    label_smoothing, z_loss: of the training, see `Objective`; losses that are told include them.
    source_language, target_language: for a tokenizer that marks them, see `languages`; "" leaves it as it is.
    """

    input: Annotated[str, INPUT] = "input"
    target: Annotated[str, TARGET] = "target"
    template: Annotated[str, TEMPLATE] = "{input}\n"
    chat: Annotated[bool, CHAT] = False
    system: Annotated[str, SYSTEM] = ""
    metric: Annotated[
        str,
        Option("for {kinds}, one or more; the first decides, the others are told (default: exact_match).", rest="also"),
    ] = "exact_match"
    also: tuple[str, ...] = ()
    lowercase: Annotated[bool, LOWERCASE] = False
    max_new_tokens: Annotated[int | None, MAX_NEW_TOKENS] = None
    blank_ends: bool = True
    beams: Annotated[int, Option("for {kinds}, of a beam search (default: 1, greedy).")] = 1
    length_penalty: Annotated[
        float | None, Option("for {kinds}, of beams: above 0 longer answers gain (default: 1).")
    ] = None
    min_new_tokens: Annotated[int, Option("for {kinds}, the shortest answer.")] = 0
    no_repeat_ngram: Annotated[int, Option("for {kinds}, no run of so many tokens twice in an answer.")] = 0
    label_smoothing: Annotated[
        float,
        Option("for {kinds}, the share of a target token's probability that is spread over all tokens."),
    ] = 0.0
    z_loss: Annotated[
        float, Option("for {kinds}, this times the squared log of the softmax's sum is added to the loss.")
    ] = 0.0
    source_language: Annotated[
        str,
        Option("for {kinds} by a model whose tokenizer marks languages (mBART), of the inputs: en_XX, or en."),
    ] = ""
    target_language: Annotated[str, Option("the same, of the answers.")] = ""
    turns: Turns | None = None  # filled in by `prepare`, as are notes
    notes: tuple[str, ...] = ()

    writes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        chats.check_chat(self)
        check_metrics(self.metric, self.also, self.lowercase)
        self.beam_search()
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise UserError(f"Generation(max_new_tokens={self.max_new_tokens}) must be at least 1.")
        if not 0 <= self.label_smoothing < 1 or self.z_loss < 0:
            raise UserError(
                f"Generation(label_smoothing={self.label_smoothing:g}, z_loss={self.z_loss:g}): the first is a share, "
                "from 0 to below 1, and the second at least 0."
            )
        if self.target in templates.fields(self.template):
            raise UserError(
                f"Template {self.template!r} contains the target's own field {{{self.target}}}, which would "
                "give the answer away. Take it out; the target is added behind the template."
            )

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

    def prepare(self, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase, *, model_kind: str) -> Generation:
        _check_kind(model_kind)
        for name in (self.metric, *self.also):
            find_metric(name).needs()
        for rows in splits.values():
            every_row(rows, self._texts)
        train, turns = splits["train"], chats.in_turns(self, tokenizer, model_kind)
        told = history.checked(replace(self, turns=turns), splits, tokenizer)
        longest = self.max_new_tokens
        if longest is None:
            texts = [self._texts(row, index) for index, row in enumerate(train)]
            lengths = sorted(map(len, replace(self, turns=turns)._targets(tokenizer, texts, model_kind)))
            usual = lengths[ceil(0.99 * len(lengths)) - 1]
            longest = usual + max(4, usual // 10)
        has_end = tokenizer.eos_token_id is not None or bool(turns and turns.stop is not None)
        self.beam_search().check(longest, has_end)
        notes = [self.beam_search().note(longest), *languages.notes(tokenizer, self), *chats.notes_of(turns), *told]
        ends = self.blank_ends and turns is None  # a turn has an end of its own
        targets = {part: [str(row[self.target]) for row in rows] for part, rows in splits.items()}
        notes += blank_lines.notes(targets) if ends else []
        ends = ends and not blank_lines.holding(targets["train"])
        if not has_end:
            notes.append(
                f"The tokenizer has no end-of-sequence token: all {len(train)} training rows are learned "
                "without an end, and decoding stops by length only."
            )
        return replace(self, max_new_tokens=longest, blank_ends=ends, turns=turns, notes=tuple(notes))

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
        _check_kind(model_kind)
        texts = every_row(rows, self._texts)
        before = history.earlier(self, rows)
        pairs = zip(texts, before, strict=True)
        asked = [(*(own[name] for name in self.fields()), *past) for own, past in pairs]
        references: dict[tuple[str, ...], list[str]] = {}
        for one, values in zip(asked, texts, strict=True):
            references.setdefault(one, []).append(values[self.target].strip())
        firsts = {one: index for index, one in reversed(list(enumerate(asked)))}
        kept = range(len(rows)) if train else sorted(firsts.values())
        chosen = [texts[index] for index in kept]
        places = [place(rows[index], index) for index in kept]
        targets = self._targets(tokenizer, chosen, model_kind)
        layout = templates.Layout(chats.asked(self), self.input, model_kind, behind, chats.head_of(self))
        rooms = self._rooms(targets, room, model_kind, train)
        put = [chats.values_of(self, one) for one in chosen]
        filled = layout.encode(tokenizer, put, rooms, places, [before[index] for index in kept])
        return [
            Encoded(
                row=line_of(rows[index], index),
                index=index,
                input_ids=ids,
                target_ids=target,
                label=None,
                references=tuple(references[asked[index]]),
                source="\t".join(asked[index]),
                cut=cut,
            )
            for index, target, (ids, cut) in zip(kept, targets, filled, strict=True)
        ]

    def as_question(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return or_filled(row, self.target, "-")

    def loss(self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
        from tunescope.tasks.answers import likelihood

        return likelihood.target_loss(model, batch, tokenizer, objective=self.objective())

    def row_losses(
        self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase
    ) -> Tensor:
        from tunescope.tasks.answers import likelihood

        return likelihood.target_losses(model, batch, tokenizer, objective=self.objective())

    def predict(
        self,
        model: PreTrainedModel,
        rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
    ) -> list[Prediction]:
        from tunescope.data.scores import statistics
        from tunescope.tasks.answers.decode import written

        stop = self.turns.stop if self.turns else None
        texts = written(model, rows, tokenizer, self.beam_search(), self._longest(), batch_size, stop)
        texts = [BLANK_LINE.split(text, 1)[0] for text in texts] if self.blank_ends else texts
        stats = statistics(self.metric, texts, [row.references for row in rows], lowercase=self.lowercase)
        return [Prediction(row.row, text, own) for row, text, own in zip(rows, texts, stats, strict=True)]

    def objective(self) -> Objective:
        from tunescope.tasks.answers.objective import Objective  # of each target token

        return Objective(self.label_smoothing, self.z_loss)

    def beam_search(self) -> BeamSearch:
        """How answers are looked for."""
        return BeamSearch(self.beams, self.length_penalty, self.min_new_tokens, self.no_repeat_ngram)

    def demonstrations(self, rows: Rows, k: int, seed: int) -> str:
        """``k`` random rows, each the filled template and its target."""
        chosen = [(rows[index], self._texts(rows[index], index)) for index in uniform(len(rows), k, seed)]
        return "".join(str(history.solved(self, row, own, own[self.target].strip())) for row, own in chosen)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "metric": self.metric,
            "also": list(self.also),
            "higher_is_better": True,
            "chance": None,
            "labels": None,
            "fields": list(self.fields()),
            "target": self.target,
            "template": self.template,
            **chats.described(self),
            "max_new_tokens": self.max_new_tokens,
            "blank_ends": self.blank_ends,
            **asdict(self.beam_search()),
            "label_smoothing": self.label_smoothing,
            "z_loss": self.z_loss,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "compared": find_metric(self.metric).described(self.lowercase),
            "also_compared": {name: find_metric(name).described(self.lowercase) for name in self.also},
            "notes": list(self.notes),
        }

    def _texts(self, row: Mapping[str, Any], index: int) -> dict[str, str]:
        texts = {name: value(row, name, index) for name in (*self.fields(), self.target)}
        if not texts[self.target].strip():
            raise UserError(f"{place(row, index)}: '{self.target}' is empty. Fill it in or delete the row.")
        return texts

    def _targets(
        self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[Mapping[str, str]], model_kind: str
    ) -> list[templates.Ids]:
        """Token ids of the targets, with the end where the tokenizer has one."""
        answers = [one[self.target].strip() for one in texts]
        stop = self.turns.stop if self.turns and self.turns.stop is not None else tokenizer.eos_token_id
        end = () if stop is None else (stop,)
        if model_kind == "encoder-decoder":
            front, back = templates.edges(tokenizer, target=True)
            back = back if set(end) <= set(back) else back + end
            return [front + one + back for one in templates.ids(tokenizer, answers, target=True)]
        return [
            one + end for one in templates.continuations(tokenizer, chats.asked(self), answers, chats.space_of(self))
        ]

    def _rooms(
        self, targets: Sequence[templates.Ids], room: int | None, model_kind: str, train: bool
    ) -> list[int | None]:
        """Positions left for each input: in a decoder the answer takes its share, but for its last token."""
        if room is None or model_kind == "encoder-decoder":
            return [room] * len(targets)
        return [room - (len(target) if train else self._longest()) + 1 for target in targets]

    def _longest(self) -> int:
        if self.max_new_tokens is None:
            raise UserError(
                "Generation does not know how long answers are yet. Type: "
                "task = task.prepare({'train': rows}, tokenizer, model_kind=...), or max_new_tokens=64"
            )
        return self.max_new_tokens


def _check_kind(model_kind: str) -> None:
    if model_kind == "encoder":
        raise UserError("An answer is written by a decoder or an encoder-decoder, and this model is an encoder.")
