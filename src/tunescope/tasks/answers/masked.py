"""What a masked language model says at the mask: its loss over label words, and its choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from tunescope.attachment.site_hooks import logits_at
from tunescope.tasks.answers.batches import exact, pad_id, padded
from tunescope.tasks.prompts.templates import Ids
from tunescope.tasks.task import Encoded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def mask_logits(model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """(rows, vocabulary): what a masked language model says at each row's mask."""
    ids, mask = padded([item.input_ids for item in batch], pad_id(tokenizer), model.device, left=False)
    slots = torch.tensor([item.slot for item in batch], device=ids.device)
    with logits_at(model, torch.arange(ids.shape[1], device=ids.device) == slots[:, None]):
        logits: Tensor = model(input_ids=ids, attention_mask=mask).logits
    return exact(logits)


def mask_losses(
    model: PreTrainedModel, batch: Sequence[Encoded], words: Sequence[Ids], tokenizer: PreTrainedTokenizerBase
) -> Tensor:
    """(rows,): the cross-entropy over the label words alone (Gao et al. 2021, section 4, equation 1)."""
    logits = mask_logits(model, batch, tokenizer)[:, [word[0] for word in words]]
    labels = torch.tensor([item.label for item in batch], device=logits.device)
    return F.cross_entropy(logits, labels, reduction="none")
