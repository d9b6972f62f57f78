"""How each kind of model answers a classification: by a head, at a mask, or with a word at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tunescope.tasks import mask_scoring, scoring
from tunescope.tasks.batching import evaluating
from tunescope.tasks.prompts import Ids
from tunescope.tasks.task import Encoded


def loss(model: Any, batch: Sequence[Encoded], words: Sequence[Ids], tokenizer: Any) -> Tensor:
    """Scalar. words: the label words' tokens in the labels' order, which only a loss at a mask looks at."""
    if batch[0].slot is not None:
        return mask_scoring.mask_losses(model, batch, words, tokenizer).mean()
    if not batch[0].target_ids:
        return scoring.head_loss(model, batch, tokenizer)
    return scoring.target_loss(model, batch, tokenizer, start=_start(model))


def losses(model: Any, batch: Sequence[Encoded], words: Sequence[Ids], tokenizer: Any) -> Tensor:
    """(rows,): the same of each row, summed over the tokens of its word."""
    if batch[0].slot is not None:
        return mask_scoring.mask_losses(model, batch, words, tokenizer)
    if not batch[0].target_ids:
        return scoring.head_losses(model, batch, tokenizer)
    return scoring.target_losses(model, batch, tokenizer, start=_start(model))


def scores(model: Any, rows: Sequence[Encoded], words: Sequence[Ids], tokenizer: Any) -> Tensor:
    """(rows, words): at a mask the logits, elsewhere the log-probability of the whole word."""
    if rows[0].slot is not None:
        with evaluating(model):
            return mask_scoring.mask_logits(model, rows, tokenizer)[:, [word[0] for word in words]]
    return scoring.word_scores(model, [row.input_ids for row in rows], words, tokenizer, rows[0].lead)


def choices(
    model: Any,
    rows: Sequence[Encoded],
    words: Sequence[Ids],
    tokenizer: Any,
    batch_size: int,
    prior: Sequence[float] | None = None,
) -> list[int]:
    """The index of the label chosen for each row, the first of equals; no words where a head answers.

    prior: what the probability of each word is divided by before.
    """
    if not words:
        return scoring.head_choices(model, rows, tokenizer, batch_size)
    if rows and rows[0].slot is not None:
        return mask_scoring.mask_choices(model, rows, words, tokenizer, batch_size, prior)
    return scoring.word_choices(model, rows, words, tokenizer, batch_size, prior)


def _start(model: Any) -> int | None:
    return scoring.decoder_start(model) if model.config.is_encoder_decoder else None
