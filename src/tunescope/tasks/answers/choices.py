"""How each kind of model answers a classification: by a head, at a mask, or with a word at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.tasks.answers import likelihood, masked
from tunescope.tasks.answers.batch_trial import takes_left_padding
from tunescope.tasks.answers.batches import evaluating, scored
from tunescope.tasks.answers.not_numbers import refused, without_lost
from tunescope.tasks.prompts.templates import Ids
from tunescope.tasks.task import Encoded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def loss(
    model: PreTrainedModel, batch: Sequence[Encoded], words: Sequence[Ids], tokenizer: PreTrainedTokenizerBase
) -> Tensor:
    """Scalar. words: the label words' tokens in the labels' order, which only a loss at a mask looks at."""
    if batch[0].slot is not None:
        return masked.mask_losses(model, batch, words, tokenizer).mean()
    if not batch[0].target_ids:
        return likelihood.head_loss(model, batch, tokenizer)
    return likelihood.target_loss(model, batch, tokenizer, start=_start(model))


def losses(
    model: PreTrainedModel, batch: Sequence[Encoded], words: Sequence[Ids], tokenizer: PreTrainedTokenizerBase
) -> Tensor:
    """(rows,): the same of each row, summed over the tokens of its word."""
    if batch[0].slot is not None:
        return masked.mask_losses(model, batch, words, tokenizer)
    if not batch[0].target_ids:
        return likelihood.head_losses(model, batch, tokenizer)
    return likelihood.target_losses(model, batch, tokenizer, start=_start(model))


def scores(
    model: PreTrainedModel, rows: Sequence[Encoded], words: Sequence[Ids], tokenizer: PreTrainedTokenizerBase
) -> Tensor:
    """(rows, labels): a head's logits, at a mask the words' logits, elsewhere the log-probability of the whole word."""
    if not words:
        return likelihood.head_scores(model, rows, tokenizer)
    if rows[0].slot is None:
        return likelihood.word_scores(model, [row.input_ids for row in rows], words, tokenizer, rows[0].lead)
    with evaluating(model):
        return masked.mask_logits(model, rows, tokenizer)[:, [word[0] for word in words]]


def all_scores(
    model: PreTrainedModel,
    rows: Sequence[Encoded],
    words: Sequence[Ids],
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int = 32,
) -> Tensor:
    """`scores` of any number of rows, in batches.

    Raises:
        UserError: scores that are no numbers.
    """
    n_long = max(1, sum(len(word) > 1 for word in words))
    size = max(1, min(batch_size, likelihood.ROWS_IN_CACHE // n_long))
    alike = bool(words) and not takes_left_padding(model, [len(row.input_ids) for row in rows], size)
    found = scored(model, rows, size, lambda some: scores(model, some, words, tokenizer), alike=alike)
    if not found.isnan().any():
        return found

    def again(some: list[int]) -> Tensor:
        return scores(model, [rows[index] for index in some], words, tokenizer)

    return torch.stack(without_lost(model, rows, list(found), size, again))


def own_scores(
    model: PreTrainedModel, rows: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase, batch_size: int
) -> Tensor:
    """(rows,): the log-probability of each row's own target behind its input; no gradients, no dropout.

    Raises:
        UserError: scores that are no numbers.
    """
    found = scored(model, rows, batch_size, lambda some: -losses(model, some, [], tokenizer))  # padded on the right
    if (lost := found.isnan()).any():
        raise refused(rows[int(lost.nonzero()[0, 0])])
    return found


def label_scores(
    model: PreTrainedModel,
    rows: Sequence[Encoded],
    words: Sequence[Ids],
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int,
    prior: Sequence[float] | None = None,
) -> Tensor:
    """`all_scores`, of which the highest is chosen; no words where a head answers.

    prior: what the probability of each word is divided by before.
    """
    found = all_scores(model, rows, words, tokenizer, batch_size)
    return found if prior is None else found - found.new_tensor(prior).log()


def _start(model: PreTrainedModel) -> int | None:
    return likelihood.decoder_start(model) if model.config.is_encoder_decoder else None
