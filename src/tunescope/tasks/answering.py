"""How each kind of model answers a classification: by a head, at a mask, or with a word at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tunescope.tasks import mask_scoring, scoring
from tunescope.tasks.prompts import Ids
from tunescope.tasks.task import Encoded


def loss(model: Any, batch: Sequence[Encoded], words: Sequence[Ids], tokenizer: Any) -> Tensor:
    """Scalar. words: the label words' tokens in the labels' order, which only a loss at a mask looks at."""
    if batch[0].slot is not None:
        return mask_scoring.mask_loss(model, batch, words, tokenizer)
    if not batch[0].target_ids:
        return scoring.head_loss(model, batch, tokenizer)
    start = scoring.decoder_start(model) if model.config.is_encoder_decoder else None
    return scoring.target_loss(model, batch, tokenizer, start=start)


def choices(model: Any, rows: Sequence[Encoded], words: Sequence[Ids], tokenizer: Any, batch_size: int) -> list[int]:
    """The index of the label chosen for each row, the first of equals; no words where a head answers."""
    if not words:
        return scoring.head_choices(model, rows, tokenizer, batch_size)
    if rows and rows[0].slot is not None:
        return mask_scoring.mask_choices(model, rows, words, tokenizer, batch_size)
    return scoring.word_choices(model, rows, words, tokenizer, batch_size)
