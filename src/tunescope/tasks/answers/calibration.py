"""Contextual calibration: what the model answers to inputs without content, divided out of its answers.

Zhao et al. 2021 (arXiv:2102.09690), section 5.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from tunescope.errors import UserError
from tunescope.tasks.answers import choices
from tunescope.tasks.prompts import mask, templates
from tunescope.tasks.task import Encoded, Labelled

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CONTENT_FREE = ("N/A", "", "[MASK]")


def calibrated(
    task: Labelled,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    model_kind: str,
    behind: str | None = None,
    room: int | None = None,
) -> Labelled:
    """The task with the `prior` of this model, as it stands with whatever is attached to it.

    A content-free text stands in every field of the template. The probabilities of the labels, each that of its whole
    word, are normalised over the labels for each content-free text, and the mean over these is the prior; answers are
    then the labels with the highest p / prior (W = diag(p_cf)^-1, b = 0). The paper's released code takes the mean
    first and normalises then.

    Args:
        behind, room: as in `Task.encode`.

    Raises:
        UserError: as `contentless`.
    """
    asked = contentless(task, tokenizer, model_kind=model_kind, behind=behind, room=room)
    words = list(task.word_ids(tokenizer, model_kind).values())
    prior = share(choices.all_scores(model, asked, words, tokenizer))
    return replace(task, prior=dict(zip(task.labels, prior.tolist(), strict=True)))  # type: ignore[type-var]


def contentless(
    task: Labelled, tokenizer: PreTrainedTokenizerBase, *, model_kind: str, behind: str | None, room: int | None
) -> list[Encoded]:
    """The rows without content, as the task asks them.

    Raises:
        UserError: a head answers and no words, or the template has no words of its own.
    """
    if not task.in_words:
        raise UserError("calibrate=true divides probabilities of label words, and this task is answered by a head.")
    has_mark = mask.halves(task.template) is not None and model_kind != "decoder"
    is_turn = getattr(task, "turns", None) is not None  # which has marks of its own
    if not has_mark and not is_turn and not templates.ids(tokenizer, [_empty(task)])[0]:
        raise UserError(
            f"calibrate=true asks with empty fields, and template {task.template!r} is then empty. "
            "Put words around the field, as in --template '{text} It was'"
        )
    rows = [{**dict.fromkeys(task.fields(), text), task.label: task.labels[0]} for text in CONTENT_FREE]
    return task.encode(rows, tokenizer, model_kind=model_kind, behind=behind, room=room)


def share(scores: Tensor) -> Tensor:
    """(..., rows without content, labels) -> (..., labels): the mean over the rows of the labels' shares, float64."""
    return scores.cpu().double().softmax(-1).mean(-2)


def _empty(task: Labelled) -> str:
    return templates.fill(task.template, dict.fromkeys((*task.fields(), mask.MASK), ""))
