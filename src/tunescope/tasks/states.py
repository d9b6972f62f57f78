"""Rows as vectors, by the frozen model that is asked: no other encoder is needed to say what is similar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tunescope.tasks.batching import batches, decoder_keywords, evaluating, pad_id, padded
from tunescope.tasks.task import Encoded


def mean_states(model: Any, rows: Sequence[Encoded], tokenizer: Any, batch_size: int = 32) -> Tensor:
    """(rows, width): the mean of the last hidden states over each row's input tokens, special ones among them.

    Of an encoder-decoder those of the encoder. Float32, or float64 where the model is.
    """
    found: list[Tensor] = [torch.empty(0)] * len(rows)
    with evaluating(model):
        for some in batches([len(row.input_ids) for row in rows], batch_size):
            ids, mask = padded([rows[index].input_ids for index in some], pad_id(tokenizer), model.device, left=False)
            states = _last(model, ids, mask)
            real = mask[..., None].to(states.dtype)
            means = (states * real).sum(1) / real.sum(1)
            for index, mean in zip(some, means.to(torch.promote_types(means.dtype, torch.float32)), strict=True):
                found[index] = mean
    return torch.stack(found)


def _last(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """(rows, tokens, width)"""
    if model.config.is_encoder_decoder:
        states: Tensor = model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return states
    base = model.base_model
    keywords = decoder_keywords(base, mask, None)
    out: Tensor = base(input_ids=ids, attention_mask=mask, **keywords).last_hidden_state
    return out
