"""A model's own loss on windows of any text: what it was pretrained for, or the nearest that its head can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tunescope.attachment.share import dealt
from tunescope.attachment.site_hooks import logits_at
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.tasks.answers.batches import decoder_keywords, evaluating, exact, pad_id
from tunescope.tasks.answers.likelihood import shifted_right
from tunescope.tasks.prompts.templates import Ids, edges

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MASKED = 0.15  # the share of a window's tokens (Devlin et al. 2019, section 3.1); all of them become the mask
LOGITS = 2**26  # numbers of a pass of several windows, at most
LOSSES = {
    "decoder": "the next token",
    "encoder-decoder": "the second half of a window, given its first half",
    "encoder": f"{MASKED:.0%} of the tokens, masked",
}

Made = tuple[dict[str, Any], Tensor, Tensor]  # a model's inputs, where it is asked, and the tokens that are right there


def window_losses(
    model: PreTrainedModel, windows: Sequence[Ids], tokenizer: PreTrainedTokenizerBase, *, bos: bool = True
) -> Tensor:
    """(windows,): each window's mean loss in nats a token, float32 at least; no gradients, no dropout.

    decoder: of every token but the first, which is given.
    encoder-decoder: of the second half, the first being what the encoder reads.
    encoder: of masked tokens, the same ones in every call.
    Special tokens stand where the tokenizer puts them, and are not counted.

    Args:
        windows: ids without special tokens, all of one length.
        bos: False where a text context in front has already begun the sequence.

    Raises:
        UserError: an encoder without a masked-language-model head, or a tokenizer without a mask.
    """
    kind = anatomy(model).kind
    make = {"decoder": _next_tokens, "encoder-decoder": _second_halves, "encoder": _masked}[kind]
    size = max(1, LOGITS // (len(tokenizer) * len(windows[0])))

    def losses(first: int) -> Tensor:
        ids = torch.tensor(windows[first : first + size], device=model.device)
        inputs, where, targets = make(model, ids, tokenizer, bos)
        with logits_at(model, where):
            logits = exact(model(**inputs).logits)
        return F.cross_entropy(logits, targets.flatten(), reduction="none").view(targets.shape).mean(1)

    with evaluating(model):
        return torch.cat(dealt(model, range(0, len(windows), size), losses))


def _next_tokens(model: PreTrainedModel, ids: Tensor, tokenizer: PreTrainedTokenizerBase, bos: bool) -> Made:
    front = edges(tokenizer)[0] if bos else ()
    whole = _within(front, ids, ())
    mask = torch.ones_like(whole)
    starts = torch.full((len(ids),), len(front), device=ids.device)
    where = _columns(whole, range(len(front), whole.shape[1] - 1))
    keywords = decoder_keywords(model, mask, starts)
    return {"input_ids": whole, "attention_mask": mask, "use_cache": False, **keywords}, where, ids[:, 1:]


def _second_halves(model: PreTrainedModel, ids: Tensor, tokenizer: PreTrainedTokenizerBase, bos: bool) -> Made:
    half = ids.shape[1] // 2
    front, back = edges(tokenizer)
    source = _within(front if bos else (), ids[:, :half], back)
    before, behind = edges(tokenizer, target=True)
    read = shifted_right(model, _within(before, ids[:, half:], behind), pad_id(tokenizer))
    where = _columns(read, range(len(before), len(before) + ids.shape[1] - half))
    inputs = {"input_ids": source, "attention_mask": torch.ones_like(source), "decoder_input_ids": read}
    return {**inputs, "use_cache": False}, where, ids[:, half:]


def _masked(model: PreTrainedModel, ids: Tensor, tokenizer: PreTrainedTokenizerBase, bos: bool) -> Made:
    if model.get_output_embeddings() is None:
        raise UserError("an encoder with a classification head has no loss of its own on a text")
    if tokenizer.mask_token_id is None:
        raise UserError("the tokenizer has no mask token, which an encoder's own loss needs")
    front, back = edges(tokenizer)
    front = front if bos else ()
    masked = masked_places(ids.shape[1]).to(ids.device).expand_as(ids)
    whole = _within(front, ids.masked_fill(masked, tokenizer.mask_token_id), back)
    where = F.pad(masked, (len(front), len(back)))
    return {"input_ids": whole, "attention_mask": torch.ones_like(whole)}, where, ids[masked].view(len(ids), -1)


def masked_places(length: int) -> Tensor:
    """(length,) bool: 15 % of the places, one at least, the same at every call, in every window and for every model."""
    order = torch.rand(length, generator=torch.Generator().manual_seed(0)).argsort()
    return order < max(1, round(MASKED * length))


def _within(front: Ids, ids: Tensor, back: Ids) -> Tensor:
    """(rows, length): the same tokens in front of every row and behind it."""
    before, behind = (ids.new_tensor(edge).expand(len(ids), -1) for edge in (front, back))
    return torch.cat([before, ids, behind], 1)


def _columns(ids: Tensor, columns: range) -> Tensor:
    """(rows, length) bool: True in these columns."""
    where = torch.zeros_like(ids, dtype=torch.bool)
    where[:, columns.start : columns.stop] = True
    return where
