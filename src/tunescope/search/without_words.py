"""A bench for searches that look for label words, so that none need to be known before."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tunescope.data.read import read
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.models.load import load_model
from tunescope.search.vocabulary import whole_words
from tunescope.tasks.make import make_task
from tunescope.tasks.prompts import chat
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def open_unworded(
    plan: Plan, model: PreTrainedModel | None = None, tokenizer: PreTrainedTokenizerBase | None = None
) -> tuple[Bench, bool]:
    """`open_bench`; where the plan names no label words, words of the vocabulary may stand in for them, and whether.

    Without words each label stands for itself. At a mask few labels are one token, so there words always stand in;
    elsewhere where the labels cannot be told apart as words. Which words stand in says nothing: they are the first of
    the vocabulary.

    Raises:
        UserError: as `open_bench`, or fewer words in the vocabulary than labels.
    """
    if model is None:
        model, tokenizer = load_model(plan.model, in_words=plan.task.get("by") == "words")
    task = make_task(plan.task, anatomy(model).kind)
    is_named = not task.in_words or bool(task.words)
    if is_named:
        return open_bench(plan, model, tokenizer, task), False
    if anatomy(model).kind != "encoder":
        with suppress(UserError):
            return open_bench(plan, model, tokenizer, task), False
    labels = sorted({task.label_of(row, index) for index, row in enumerate(read(plan.data["train"]))})
    task = replace(task, turns=chat.in_turns(task, tokenizer, anatomy(model).kind))
    words = list(whole_words(tokenizer, chat.asked(task), anatomy(model).kind, chat.space_of(task)).values())
    if len(words) < len(labels):
        raise UserError(f"The vocabulary has {len(words)} whole words, and there are {len(labels)} labels to name.")
    stand_in = replace(task, words=dict(zip(labels, words, strict=False)))
    return open_bench(plan, model, tokenizer, stand_in), True
