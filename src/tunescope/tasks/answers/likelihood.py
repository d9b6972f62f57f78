"""Losses over target tokens, and the log-probabilities of label words: the torch side of the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tunescope.attachment.site_hooks import logits_at
from tunescope.errors import UserError
from tunescope.tasks.answers.batches import decoder_keywords, evaluating, exact, pad_id, padded
from tunescope.tasks.answers.masked import mask_logits
from tunescope.tasks.answers.objective import PLAIN, Objective
from tunescope.tasks.prompts.templates import Ids
from tunescope.tasks.task import Encoded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.cache_utils import Cache

ROWS_IN_CACHE = 128  # rows times label words whose cache is held at once


def target_loss(
    model: PreTrainedModel,
    batch: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
    *,
    start: int | None = None,
    objective: Objective = PLAIN,
) -> Tensor:
    """Scalar: the mean of the objective over all target tokens of the batch, each row's input given.

    Args:
        start: the decoder's first token in an encoder-decoder; None lets the model build its decoder inputs.
    """
    return objective.mean(*_target_logits(model, batch, tokenizer, start))


def target_losses(
    model: PreTrainedModel,
    batch: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
    *,
    start: int | None = None,
    objective: Objective = PLAIN,
) -> Tensor:
    """(rows,): the sum of the objective over each row's target tokens, otherwise as `target_loss`."""
    tokens = objective.each(*_target_logits(model, batch, tokenizer, start))
    owner = [index for index, item in enumerate(batch) for _ in item.target_ids]
    return tokens.new_zeros(len(batch)).index_add(0, torch.tensor(owner, device=tokens.device), tokens)


def _target_logits(
    model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase, start: int | None
) -> tuple[Tensor, Tensor]:
    """Logits (tokens, vocabulary) where the targets are predicted, and the targets, row by row."""
    encoder_decoder = bool(model.config.is_encoder_decoder)
    make = _encoder_decoder_inputs if encoder_decoder else _decoder_inputs
    inputs, where = make(model, batch, pad_id(tokenizer), start)
    with logits_at(model, where):
        logits: Tensor = model(**inputs, use_cache=False).logits
    targets = [token for item in batch for token in item.target_ids]
    return exact(logits), torch.tensor(targets, device=logits.device)


def head_loss(model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Scalar: mean cross-entropy over the rows, from the logits (batch, labels) of a classification head."""
    logits = _head_logits(model, batch, tokenizer)
    labels = torch.tensor([item.label for item in batch], device=logits.device)
    return F.cross_entropy(exact(logits), labels)


def head_losses(model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """(rows,): the cross-entropy of each row's label."""
    logits = _head_logits(model, batch, tokenizer)
    labels = torch.tensor([item.label for item in batch], device=logits.device)
    return F.cross_entropy(exact(logits), labels, reduction="none")


def head_scores(model: PreTrainedModel, rows: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """(rows, labels): the logits of a classification head."""
    with evaluating(model):
        return _head_logits(model, rows, tokenizer)


def word_scores(
    model: PreTrainedModel,
    prompts: Sequence[Ids],
    words: Sequence[Ids],
    tokenizer: PreTrainedTokenizerBase,
    lead: Ids = (),
) -> Tensor:
    """(prompts, words): the sum of the log-probabilities of each word's tokens behind each prompt.

    One pass over the prompts gives the first tokens; the others take one more, short pass on its cache. Where that
    cannot be repeated, as that of a recurrent layer, each word of several tokens takes a pass behind the whole prompts.

    A decoder's prompts are padded on the left: give those of one length where it does not `takes_left_padding`.

    Args:
        lead: what the decoder's side of an encoder-decoder is given before every word.
    """
    with evaluating(model):
        logits, cache, rest = _begun(model, prompts, tokenizer, lead, any(len(word) > 1 for word in words))
        scores = exact(logits).log_softmax(-1)[:, [word[0] for word in words]]  # (prompts, words)
        long = [index for index, word in enumerate(words) if len(word) > 1]
        if long and _repeats(cache):
            scores[:, long] += _rest_scores(model, [words[index] for index in long], cache, rest, tokenizer)
        elif long:
            for index in long:
                scores[:, index] = _whole_scores(model, prompts, words[index], tokenizer, lead)
    return scores


def _begun(
    model: PreTrainedModel, prompts: Sequence[Ids], tokenizer: PreTrainedTokenizerBase, lead: Ids, use_cache: bool
) -> tuple[Tensor, Any, dict[str, Any]]:
    if model.config.is_encoder_decoder:
        return _begin_encoder_decoder(model, prompts, tokenizer, lead, use_cache)
    return _begin_decoder(model, prompts, tokenizer, use_cache)


def first_token_scores(model: PreTrainedModel, rows: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """(rows, vocabulary): log-probabilities of the first token of each row's answer; no gradients, no dropout."""
    with evaluating(model):
        if rows[0].slot is not None:
            return mask_logits(model, rows, tokenizer).log_softmax(-1)
        logits, _, _ = _begun(model, [row.input_ids for row in rows], tokenizer, rows[0].lead, False)
        return exact(logits).log_softmax(-1)


def decoder_start(model: PreTrainedModel) -> int:
    """The first token of the decoder's side of an encoder-decoder.

    Raises:
        UserError: the model does not say (it begins with the language of the target, as mBART does).
    """
    for config in (model.config, getattr(model, "generation_config", None)):
        if (start := getattr(config, "decoder_start_token_id", None)) is not None:
            return int(start)
    raise UserError(
        f"{type(model).__name__} has no decoder_start_token_id, which label words need. "
        "Type: model.config.decoder_start_token_id = ID"
    )


def shifted_right(model: PreTrainedModel, labels: Tensor, pad: int) -> Tensor:
    """What the decoder reads where these are its targets, as the model itself has it; -100 is no target."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        made: Tensor = model.prepare_decoder_input_ids_from_labels(labels=labels)
        return made
    start = labels.new_full((len(labels), 1), decoder_start(model))  # M2M100's own, which has no such method
    return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == -100, pad)], 1)


def _decoder_inputs(
    model: PreTrainedModel, batch: Sequence[Encoded], pad: int, start: int | None
) -> tuple[dict[str, Any], Tensor]:
    """Prompt and target without its last token, padded right; True where a target token is predicted."""
    rows = [item.input_ids + item.target_ids[:-1] for item in batch]
    ids, mask = padded(rows, pad, model.device, left=False)
    last = torch.tensor([len(item.input_ids) - 1 for item in batch], device=ids.device)
    where = mask.bool() & (torch.arange(ids.shape[1], device=ids.device) >= last[:, None])
    return {"input_ids": ids, "attention_mask": mask, **decoder_keywords(model, mask, last)}, where


def _encoder_decoder_inputs(
    model: PreTrainedModel, batch: Sequence[Encoded], pad: int, start: int | None
) -> tuple[dict[str, Any], Tensor]:
    ids, mask = padded([item.input_ids for item in batch], pad, model.device, left=False)
    labels, real = padded([item.target_ids for item in batch], -100, model.device, left=False)
    if start is None:
        decoder_ids = shifted_right(model, labels, pad)
    else:
        before = [start, *batch[0].lead]
        decoder_ids = F.pad(labels[:, :-1], (1, 0), value=before[-1]).masked_fill(~real.bool(), pad)
        decoder_ids = torch.cat([decoder_ids.new_tensor(before[:-1]).expand(len(batch), -1), decoder_ids], 1)
    where = F.pad(real.bool(), (decoder_ids.shape[1] - real.shape[1], 0))
    return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": decoder_ids}, where


def _head_logits(model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    ids, mask = padded([item.input_ids for item in batch], pad_id(tokenizer), model.device, left=False)
    logits: Tensor = model(input_ids=ids, attention_mask=mask).logits
    return logits


def _begin_decoder(
    model: PreTrainedModel, prompts: Sequence[Ids], tokenizer: PreTrainedTokenizerBase, use_cache: bool
) -> tuple[Tensor, Any, dict[str, Any]]:
    """Logits (prompts, vocabulary) behind the prompts, their cache, and what a later pass must be told."""
    ids, mask = padded(prompts, pad_id(tokenizer), model.device, left=True)
    where = torch.zeros_like(mask, dtype=torch.bool)
    where[:, -1] = True
    last = torch.full((len(prompts),), ids.shape[1] - 1, device=ids.device)
    with logits_at(model, where):
        keywords = decoder_keywords(model, mask, last)
        out = model(input_ids=ids, attention_mask=mask, use_cache=use_cache, **keywords)
    return out.logits, out.get("past_key_values"), {"attention_mask": mask}


def _begin_encoder_decoder(
    model: PreTrainedModel, prompts: Sequence[Ids], tokenizer: PreTrainedTokenizerBase, lead: Ids, use_cache: bool
) -> tuple[Tensor, Any, dict[str, Any]]:
    ids, mask = padded(prompts, pad_id(tokenizer), model.device, left=False)
    first = torch.tensor([decoder_start(model), *lead], device=ids.device).expand(len(prompts), -1)
    with logits_at(model, (torch.arange(first.shape[1], device=ids.device) == len(lead)).expand(len(prompts), -1)):
        out = model(input_ids=ids, attention_mask=mask, decoder_input_ids=first, use_cache=use_cache)
    rest = {"attention_mask": mask, "encoder_outputs": out.encoder_last_hidden_state}
    return out.logits, out.get("past_key_values"), rest


def _repeats(cache: object) -> bool:
    """Whether a cache can be had once for each of several words: all that it holds is in layers that repeat it.

    A layer that reorders more than it repeats holds more than keys and values, such as a recurrent state.
    """
    from transformers.cache_utils import Cache, EncoderDecoderCache

    if isinstance(cache, EncoderDecoderCache):
        return _repeats(cache.self_attention_cache) and _repeats(cache.cross_attention_cache)
    if not isinstance(cache, Cache) or type(cache).batch_repeat_interleave is not Cache.batch_repeat_interleave:
        return False
    pairs = [(_owner(layer, "batch_repeat_interleave"), _owner(layer, "reorder_cache")) for layer in cache.layers]
    return all(issubclass(repeats, reorders) for repeats, reorders in pairs)


def _owner(layer: object, method: str) -> type:
    """The class that a layer has a method from; `object` where it has none."""
    return next((one for one in type(layer).__mro__ if method in vars(one)), object)


def _whole_scores(
    model: PreTrainedModel, prompts: Sequence[Ids], word: Ids, tokenizer: PreTrainedTokenizerBase, lead: Ids
) -> Tensor:
    """(prompts,): the log-probability of a whole word behind each prompt, without a cache."""
    rows = [Encoded(0, prompt, word, None, (), "", lead=lead) for prompt in prompts]
    start = decoder_start(model) if model.config.is_encoder_decoder else None
    return -target_losses(model, rows, tokenizer, start=start)


def _rest_scores(
    model: PreTrainedModel, words: Sequence[Ids], cache: Cache, rest: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> Tensor:
    """(prompts, words): log-probabilities of the words' tokens from the second on, given a cache."""
    from transformers.modeling_outputs import BaseModelOutput

    n_prompts, n_words = len(rest["attention_mask"]), len(words)
    inputs, real = padded([word[:-1] for word in words], pad_id(tokenizer), model.device, left=False)
    inputs, real = inputs.repeat(n_prompts, 1), real.repeat(n_prompts, 1)  # row: prompt * n_words + word
    cache.batch_repeat_interleave(n_words)
    mask = rest["attention_mask"].repeat_interleave(n_words, 0)
    if "encoder_outputs" in rest:
        states = rest["encoder_outputs"].repeat_interleave(n_words, 0)
        keywords = {"decoder_input_ids": inputs, "attention_mask": mask}
        keywords["encoder_outputs"] = BaseModelOutput(last_hidden_state=states)
    else:
        mask = torch.cat([mask, real], 1)
        keywords = {"input_ids": inputs, "attention_mask": mask}
        keywords |= decoder_keywords(model, mask, None, inputs.shape[1])
    with logits_at(model, real.bool()):
        logits = exact(model(**keywords, past_key_values=cache, use_cache=True).logits)
    targets = torch.tensor([token for word in words for token in word[1:]] * n_prompts, device=logits.device)
    tokens = -F.cross_entropy(logits, targets, reduction="none")
    owner = real.bool().nonzero()[:, 0]  # (tokens,) the row each predicted token belongs to
    return tokens.new_zeros(n_prompts * n_words).index_add(0, owner, tokens).view(n_prompts, n_words)
