"""Rows as vectors: by the frozen model that is asked, or by an encoder that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.whole import through
from tunescope.tasks.answers.batches import exact, in_batches, pad_id, padded
from tunescope.tasks.facts import positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.modeling_outputs import BaseModelOutput


def mean_states(
    model: PreTrainedModel, rows: Sequence[Sequence[int]], tokenizer: PreTrainedTokenizerBase, batch_size: int = 32
) -> Tensor:
    """(rows, width): the mean of the last hidden states over each row's tokens, special ones among them.

    Of an encoder-decoder those of the encoder. Float32, or float64 where the model is.
    """

    def means(some: list[int]) -> Tensor:
        ids, mask = padded([rows[index] for index in some], pad_id(tokenizer), model.device, left=False)
        states = exact(_last(model, ids, mask))  # their sum may be more than float16 holds
        real = mask.to(states)[..., None]
        return (states * real).sum(1) / real.sum(1)

    return torch.stack(in_batches(model, [len(row) for row in rows], batch_size, means))


def text_states(model: PreTrainedModel, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """(texts, width): `mean_states` of each text, cut to the positions the model has; an empty text is one padding.

    What sentence encoders are trained for, where their own pooling is the mean; any other pooling is not read.
    """
    limit = positions(model.config, tokenizer)
    rows = tokenizer(list(texts), truncation=limit is not None, max_length=limit, verbose=False)["input_ids"]
    return mean_states(model, [row or [pad_id(tokenizer)] for row in rows], tokenizer)


def _last(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """(rows, tokens, width)"""
    if model.config.is_encoder_decoder:
        encoder = model.get_encoder()
        return _states(through(model, lambda: encoder(input_ids=ids, attention_mask=mask)))
    base = model.base_model  # padded right: positions are the model's
    return _states(through(model, lambda: base(input_ids=ids, attention_mask=mask)))


def _states(out: BaseModelOutput) -> Tensor:
    states: Tensor = out.last_hidden_state
    return states
