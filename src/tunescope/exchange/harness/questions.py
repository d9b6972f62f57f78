"""What lm-evaluation-harness would ask of each document of a task, and which answer is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask

Document = Mapping[str, Any]  # a row as its dataset gives it


@dataclass(frozen=True)
class Question:
    """A prompt without the white space at its end, that white space, the choices (() where one writes), the answers."""

    prompt: str
    between: str
    choices: tuple[str, ...]
    answers: tuple[str, ...]


def questions(task: ConfigurableTask, docs: Iterable[Document], where: str) -> list[Question]:
    """Each document as the harness asks it, without examples in front.

    where: the part, for messages.

    Raises:
        UserError: an output neither chosen nor written, prompts that differ by choice, images, or no one answer.
    """
    ask = {"multiple_choice": _chosen, "generate_until": _written}.get(task.OUTPUT_TYPE)
    has_several = bool(getattr(task, "multiple_input", False))
    if ask is None or has_several or task.config.doc_to_image or task.config.doc_to_audio:
        what = "several prompts a row" if has_several else f"output_type: {task.OUTPUT_TYPE}"
        raise UserError(
            f"lm_eval:{where}: {what} cannot be trained on here: it takes multiple_choice and generate_until, of text."
        )
    return [ask(task, doc, f"lm_eval:{where} row {number}") for number, doc in enumerate(docs, start=1)]


def _prompt(task: ConfigurableTask, doc: Document) -> str:
    """Description, text and what the answer begins with, as at --num_fewshot 0."""
    return str(task.fewshot_context(doc, num_fewshot=0, gen_prefix=task.doc_to_prefix(doc)))


def _chosen(task: ConfigurableTask, doc: Document, where: str) -> Question:
    prompt, choices = _prompt(task, doc), [str(one) for one in task.doc_to_choice(doc)]
    requests = task.construct_requests(doc=doc, ctx=prompt, metadata=(task.config.task, 0, 1))
    texts = [one.args[1] for one in requests[: len(choices)]]  # behind them, those of acc_mutual_info
    gold = task.doc_to_target(doc)
    index = choices.index(gold) if isinstance(gold, str) and gold in choices else gold
    if isinstance(index, str) and index.isdigit():
        index = int(index)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(choices):
        raise UserError(f"{where}: its answer is {str(gold)[:40]!r}, which is not one of its {len(choices)} choices.")
    fronts = {text[: len(text) - len(text.lstrip())] for text in texts}
    if len(fronts) > 1:
        raise UserError(f"{where}: its choices begin with different white space, which is not kept here.")
    bare = tuple(text.strip() for text in texts)
    return Question(*_parted(prompt + fronts.pop()), bare, (bare[index],))


def _written(task: ConfigurableTask, doc: Document, where: str) -> Question:
    gold = task.doc_to_target(doc)
    answers = tuple(str(one).strip() for one in (gold if isinstance(gold, list) else [gold]))
    if not answers or not all(answers):
        raise UserError(f"{where}: its answer is empty, and cannot be trained on.")
    prompt, between = _parted(_prompt(task, doc))
    return Question(prompt, between or " ", (), answers)


def _parted(text: str) -> tuple[str, str]:
    """The text without the white space at its end, and what of that parts it from an answer.

    Spaces are one, as tokenizers have them in front of a word; the last line end stands for all that is before it.
    """
    if text.endswith("\n"):
        return text[:-1], "\n"
    bare = text.rstrip(" ")
    return bare, " " if len(bare) < len(text) else ""
