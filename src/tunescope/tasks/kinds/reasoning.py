"""Reasoning: a question whose answer is read out of what the model writes, asked for at once or behind its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tunescope.data.row import every_row, or_filled, place, put, value
from tunescope.errors import UserError
from tunescope.system.option import Option
from tunescope.tasks.answers.extract import BLANK_LINE, Extraction, vote
from tunescope.tasks.demonstration_rows import uniform
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.options import CHAT, INPUT, LOWERCASE, MAX_NEW_TOKENS, SYSTEM, TARGET, TEMPLATE
from tunescope.tasks.prompts import chat as chats
from tunescope.tasks.prompts import history, templates
from tunescope.tasks.prompts.chain import Chain
from tunescope.tasks.prompts.turns import Turns
from tunescope.tasks.task import Encoded, Prediction, Rows, Task

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

STEPS = 128  # tokens, where no row shows any


@dataclass(frozen=True, kw_only=True)
class Reasoning(Task):
    """A question, an answer, and in the field ``steps``, if rows have it, how one comes to it.

    Without a ``chain`` the answer is asked for at once: ``lead`` is put behind the template, and the answer follows.
    With one the model writes steps first, as the demonstrations do (``shown``) or as it was trained to (``taught``:
    training rows are learned as steps, lead and answer). In all cases `Extraction` reads the answer, the target as
    well as the model's; where it finds none, the row counts as wrong, and is counted. In a chat the words that ask for
    the answer or its steps are what the assistant's turn begins with.
    """

    input: Annotated[str, INPUT] = "input"
    target: Annotated[str, TARGET] = "target"
    steps: Annotated[
        str,
        Option("for {kinds}, the field that says how one comes to the answer (default: steps).", ("--steps-field",)),
    ] = "steps"
    template: Annotated[str, TEMPLATE] = "Q: {input}\nA:"
    chat: Annotated[bool, CHAT] = False
    system: Annotated[str, SYSTEM] = ""
    lead: Annotated[str, Option("for {kinds}, the words in front of an answer (default: The answer is).")] = (
        "The answer is"
    )
    read: Annotated[
        str,
        Option("for {kinds}, what is read behind them: line, number, or one of choices, as yes,no (default: line)."),
    ] = "line"
    lowercase: Annotated[bool, LOWERCASE] = False
    max_new_tokens: Annotated[int | None, MAX_NEW_TOKENS] = None  # of the answer
    step_tokens: int | None = None  # filled in by `prepare`
    chain: Chain | None = None
    shown: bool = False  # demonstrations show the steps
    taught: bool = False  # what is trained learns the steps
    seed: int = 0  # of the samples
    turns: Turns | None = None  # filled in by `prepare`, as are notes
    notes: tuple[str, ...] = ()

    about: ClassVar[str] = "an answer that is read out of what the model writes"
    writes: ClassVar[bool] = True
    reads_steps: ClassVar[bool] = True

    metric = "exact_match"

    def __post_init__(self) -> None:
        chats.check_chat(self)
        self._rule()
        for name in (self.target, self.steps):
            if name in templates.fields(self.template):
                raise UserError(f"Template {self.template!r} contains the field {{{name}}}, which tells the answer.")

    @classmethod
    def usual(cls, given: Mapping[str, Any], model_kind: str) -> dict[str, Any]:
        field = f"{{{given.get('input', 'input')}}}"
        return {"template": field if given.get("chat") else f"Q: {field}\nA:"}

    @property
    def needs_head(self) -> int | None:
        return None

    @property
    def begins(self) -> str:
        return chats.head_of(self) or ""

    def fields(self) -> tuple[str, ...]:
        return templates.fields(self.template)

    def prepare(self, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase, *, model_kind: str) -> Reasoning:
        for rows in splits.values():
            every_row(rows, self._gold)
        ready = self._generation().prepare(splits, tokenizer, model_kind=model_kind)
        shown = [str(row[self.steps]) for row in splits["train"] if row.get(self.steps)]
        targets = [str(row[self.target]) for rows in splits.values() for row in rows]
        longest = max(map(len, templates.ids(tokenizer, shown)), default=STEPS)
        notes = (
            *ready.notes,
            *self._rule().several(targets),
            f"{len(shown)} of {len(splits['train'])} training rows show their steps.",
        )
        blank = sum(BLANK_LINE.search(steps.strip()) is not None for steps in shown)
        if blank and not self.chat:
            notes += (
                f"{blank:,} of these hold a blank line, where an answer behind demonstrations ends: those that are "
                "shown cannot be read to their end. What is trained on its steps (cot+lora) has an end of its own.",
            )
        made = replace(self, max_new_tokens=ready.max_new_tokens, step_tokens=longest, turns=ready.turns)
        return replace(made, notes=notes)

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
        asked, teaches = self._generation(sum(self._lengths(tokenizer))), train and self.taught
        given = [self._with_steps(row, index) for index, row in enumerate(rows)] if teaches else rows
        items = asked.encode(given, tokenizer, model_kind=model_kind, behind=behind, train=train, room=room)
        read = self._rule().answer if teaches else self._rule().answer_behind
        return [replace(one, references=tuple(read(text) or "" for text in one.references)) for one in items]

    def as_question(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return or_filled(row, self.target, "-")

    def loss(self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
        """Of the answer behind the lead; where steps are taught, of steps, lead and answer."""
        from tunescope.tasks.answers import likelihood

        return likelihood.target_loss(model, batch, tokenizer)

    def row_losses(
        self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase
    ) -> Tensor:
        from tunescope.tasks.answers import likelihood

        return likelihood.target_losses(model, batch, tokenizer)

    def predict(
        self,
        model: PreTrainedModel,
        rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
    ) -> list[Prediction]:
        """``figures``: unread, 1 where no answer could be read; vote, the share of the samples that gave the answer."""
        from tunescope.data.scores import statistics

        drawn = range(self.chain.samples if self.chain else 1)
        answers = [self._answers(model, rows, tokenizer, batch_size, sample) for sample in drawn]
        found = []
        for row, given in zip(rows, zip(*answers, strict=True), strict=True):
            answer, share = vote(given, self.lowercase)
            (right,) = statistics(self.metric, [answer or ""], [row.references], lowercase=self.lowercase)
            figures = {"unread": float(answer is None)} | ({"vote": share} if len(drawn) > 1 else {})
            found.append(Prediction(row.row, answer or "", right, figures))
        return found

    def demonstrations(self, rows: Rows, k: int, seed: int) -> str:
        """``k`` random rows solved, with their steps where the chain is shown."""
        return "".join(self._solved(rows[index], index) for index in uniform(len(rows), k, seed))

    def describe(self) -> dict[str, Any]:
        case = "case ignored" if self.lowercase else "case kept"
        return {
            "kind": self.kind,
            "metric": self.metric,
            "higher_is_better": True,
            "chance": None,
            "labels": None,
            "fields": list(self.fields()),
            "target": self.target,
            "steps": self.steps,
            "template": self.template,
            "asked": self._generation(1).template,
            **chats.described(self),
            "lead": self.lead,
            "read": self.read,
            "max_new_tokens": self.max_new_tokens,
            "step_tokens": self.step_tokens,
            "chain": asdict(self.chain) | {"shown": self.shown, "taught": self.taught} if self.chain else None,
            "compared": f"the answer read, equal to the target's, {case}; where none can be read, wrong",
            "notes": list(self.notes),
        }

    def _answers(
        self,
        model: PreTrainedModel,
        rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        batch_size: int,
        sample: int,
    ) -> list[str | None]:
        """One answer a row, or None."""
        from tunescope.tasks.answers.decode import Sampling, greedy, sampled

        rule, chain, (first, _) = self._rule(), self.chain, self._lengths(tokenizer)
        if chain and chain.temperature:
            drawn = Sampling(chain.temperature, self.seed * chain.samples + sample)
            texts = sampled(model, rows, tokenizer, first, batch_size, drawn, self._stop())
        else:
            texts = greedy(model, rows, tokenizer, first, batch_size, self._stop())
        if chain is None or self._in_one_pass:
            return [rule.answer(text) if chain else rule.answer_behind(text) for text in texts]
        asked = self._asked_again(rows, texts, tokenizer)
        last = greedy(model, asked, tokenizer, self.max_new_tokens or 0, batch_size, self._stop())
        return [rule.answer_behind(text) for text in last]

    def _asked_again(
        self, rows: Sequence[Encoded], texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
    ) -> list[Encoded]:
        """The prompts, the steps that were written behind them, and the words that ask for the answer."""
        assert self.chain is not None
        asked = self._generation()
        steps = templates.continuations(tokenizer, chats.asked(asked), texts, chats.space_of(asked))
        (words,) = templates.continuations(tokenizer, "{x}.", [self.chain.then])
        pairs = zip(rows, steps, strict=True)
        return [replace(row, input_ids=row.input_ids + ids[: self._step_tokens()] + words) for row, ids in pairs]

    def _lengths(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
        """Tokens that are written in the first pass, and behind it: at most, the words that ask again among them."""
        if self.max_new_tokens is None:
            raise UserError("Reasoning does not know how long answers are yet: prepare it, or give max_new_tokens=16")
        if self.chain is None:
            return self.max_new_tokens, 0
        words = self.lead if self._in_one_pass else self.chain.then
        asking = len(templates.continuations(tokenizer, "{x}.", [words])[0])
        if self._in_one_pass:
            return self._step_tokens() + asking + self.max_new_tokens, 0
        return self._step_tokens(), asking + self.max_new_tokens

    def _step_tokens(self) -> int:
        return (self.chain.tokens if self.chain else None) or self.step_tokens or STEPS

    def _generation(self, longest: int | None = None) -> Generation:
        """The answer, as it is written behind the words that ask for it or for its steps."""
        words = "" if self.chain and self._in_one_pass else self.chain.think if self.chain else self.lead
        template = self.template
        if words and not self.chat:
            template += templates.separator(template) + templates.escaped(words)
        return Generation(
            input=self.input,
            target=self.target,
            template=template,
            chat=self.chat,
            system=self.system,
            turns=replace(self.turns, opening=words) if self.turns else None,
            max_new_tokens=longest or self.max_new_tokens,
            blank_ends=False,
        )

    @property
    def _in_one_pass(self) -> bool:
        """Whether answer and steps are written together, which a model knows to do that was shown or taught it."""
        return self.shown or self.taught

    def _stop(self) -> int | None:
        return self.turns.stop if self.turns else None

    def _rule(self) -> Extraction:
        has_end = self.chat or self.taught  # of its own, and not the first blank line
        return Extraction(self.read, self.lead, blank_ends=not has_end)

    def _gold(self, row: Mapping[str, Any], index: int) -> None:
        """UserError for a target that the rule itself cannot read."""
        target = value(row, self.target, index)
        rule = self._rule()
        if (found := rule.answer_behind(target)) is None:
            raise UserError(
                f"{place(row, index)}: '{self.target}' is {target[:40]!r}, in which --read {self.read} finds no answer."
            )
        if rule.answer(f"{self.lead} {target}") != found:
            raise UserError(
                f"{place(row, index)}: '{self.target}' is {target[:40]!r}, which holds the words in front of an "
                f"answer, {self.lead!r}. Take them out, or give other words with --lead."
            )

    def _with_steps(self, row: Mapping[str, Any], index: int) -> Mapping[str, Any]:
        """The training row with steps, lead and answer as what is to be written."""
        return put(row, self.target, self._written(value(row, self.steps, index), value(row, self.target, index)))

    def _written(self, steps: str, answer: str) -> str:
        return f"{steps.strip()} {self.lead} {answer.strip()}"

    def _solved(self, row: Mapping[str, Any], index: int) -> str:
        names = (*self.fields(), self.target, *((self.steps,) if self.chain else ()))
        texts = {name: value(row, name, index).strip() for name in names}
        answer = texts[self.target]
        written = self._written(texts[self.steps], answer) if self.chain else f"{self.lead} {answer}"
        return str(history.solved(self, row, texts, written))
