"""Texts that a model writes, greedily, by beams or sampled: decoded by transformers, never as the checkpoint sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.models.split import is_split_over
from tunescope.system.machine import seeded
from tunescope.tasks.answers.batch_trial import writes_in_batches
from tunescope.tasks.answers.batches import in_batches, pad_id, padded
from tunescope.tasks.answers.beam_search import BeamSearch
from tunescope.tasks.answers.generation_config import only
from tunescope.tasks.answers.likelihood import shifted_right
from tunescope.tasks.answers.not_numbers import without_lost
from tunescope.tasks.prompts.languages import has_languages
from tunescope.tasks.prompts.templates import edges
from tunescope.tasks.task import Encoded

if TYPE_CHECKING:
    from transformers import LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Sampling:
    """How texts are drawn. temperature: what logits are divided by."""

    temperature: float
    seed: int


def greedy(
    model: PreTrainedModel,
    rows: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int,
    batch_size: int,
    stop: int | None = None,
) -> list[str]:
    """One text a row, in the order given: up to the end-of-sequence token or the length, stripped.

    stop: a token that ends a text, too.

    Raises:
        UserError: scores that are no numbers.
    """
    return written(model, rows, tokenizer, BeamSearch(), max_new_tokens, batch_size, stop)


def written(
    model: PreTrainedModel,
    rows: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
    search: BeamSearch,
    max_new_tokens: int,
    batch_size: int,
    stop: int | None = None,
) -> list[str]:
    """The same, as `search` says: of beams, the text of the best one."""
    how = search.keywords() | {"max_new_tokens": max_new_tokens} | _ends(tokenizer, stop)
    return _texts(model, rows, tokenizer, how, batch_size, search.no_repeat_ngram)


def sampled(
    model: PreTrainedModel,
    rows: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int,
    batch_size: int,
    sampling: Sampling,
    stop: int | None = None,
) -> list[str]:
    """The same, sampled from the whole distribution at the temperature: no top-k, no top-p. The seed fixes them all.

    Which texts a seed gives depends on the batch size too.
    """
    how: dict[str, Any] = {"max_new_tokens": max_new_tokens, "do_sample": True, "temperature": sampling.temperature}
    how |= {"top_k": 0, "top_p": 1.0} | _ends(tokenizer, stop)
    with seeded(sampling.seed):
        return _texts(model, rows, tokenizer, how, batch_size)


def _ends(tokenizer: PreTrainedTokenizerBase, stop: int | None) -> dict[str, list[int]]:
    return {} if stop is None else {"eos_token_id": list({stop, tokenizer.eos_token_id} - {None})}


def _texts(
    model: PreTrainedModel,
    rows: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
    how: Mapping[str, Any],
    batch_size: int,
    no_repeat: int = 0,
) -> list[str]:
    def work(some: list[int]) -> list[str | None]:
        return _decoded(model, [rows[index] for index in some], tokenizer, how, no_repeat)

    lengths = [len(row.input_ids) for row in rows]
    beams = how.get("num_beams", 1)
    if not writes_in_batches(model, lengths, batch_size * beams):  # nor may its state follow the beams
        batch_size, how = 1, {**how, "use_cache": beams == 1}
    deal = not how.get("do_sample")
    found = in_batches(model, lengths, batch_size, work, deal=deal)
    return without_lost(model, rows, found, batch_size, work, deal)


def _decoded(
    model: PreTrainedModel,
    batch: Sequence[Encoded],
    tokenizer: PreTrainedTokenizerBase,
    how: Mapping[str, Any],
    no_repeat: int,
) -> list[str | None]:
    """The texts; None where scores were NaN before a text's end, or in a search of several beams at all."""
    from transformers import GenerationConfig

    encoder_decoder = bool(model.config.is_encoder_decoder)
    pad = pad_id(tokenizer)
    ids, mask = padded([row.input_ids for row in batch], pad, model.device, left=not encoder_decoder)
    config = GenerationConfig(
        **{"num_beams": 1, "use_cache": True, "eos_token_id": tokenizer.eos_token_id, **how},
        pad_token_id=pad,
        decoder_start_token_id=_start(model, batch, pad) if encoder_decoder else None,
        forced_bos_token_id=_language(tokenizer) if encoder_decoder else None,
    )
    seen: list[Tensor] = []
    with only(model, config):
        begun = 1 if encoder_decoder else ids.shape[1]
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=config,
            logits_processor=_rules(no_repeat, begun, seen),
            synced_gpus=is_split_over(model),  # a process whose texts have ended takes part in the others' passes
        )
    answers = out[:, begun:].tolist()
    ends = how.get("eos_token_id", [tokenizer.eos_token_id])
    beams = how.get("num_beams", 1)
    lost = torch.stack(seen, -1).view(len(batch), beams, -1).any(1).tolist()  # (rows, passes)
    lasts = [_end(answer, ends) if beams == 1 else len(seen) for answer in answers]
    return [
        None if any(passes[: last + 1]) else text_of(tokenizer, answer, ends)
        for answer, passes, last in zip(answers, lost, lasts, strict=True)
    ]


def _rules(no_repeat: int, begun: int, seen: list[Tensor]) -> LogitsProcessorList:
    """What every pass's scores go through; `seen` takes which rows' of them held NaN.

    transformers' rule against repetition sees the answer alone: names in the input may be copied.
    """
    from transformers import LogitsProcessorList, NoRepeatNGramLogitsProcessor

    def look(_ids: Tensor, scores: Tensor) -> Tensor:
        seen.append(lost := scores.amax(-1).isnan())  # read at the end: a GPU need not wait at every pass
        return scores.masked_fill_(lost[:, None], 0.0)  # from NaN nothing can be sampled

    if not no_repeat:
        return LogitsProcessorList([look])
    rule = NoRepeatNGramLogitsProcessor(no_repeat)
    return LogitsProcessorList([look, lambda ids, scores: rule(ids[:, begun:], scores)])


def _language(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that an answer begins with, where that is its language: training has it there, and decoding is told."""
    front = edges(tokenizer, target=True)[0] if has_languages(tokenizer) else ()
    return front[0] if front else None


def _start(model: PreTrainedModel, batch: Sequence[Encoded], pad: int) -> int:
    """The decoder's first token, which is the one the model puts before the same targets in training."""
    labels, _ = padded([batch[0].target_ids], -100, model.device, left=False)
    return int(shifted_right(model, labels, pad)[0, 0])


def text_of(tokenizer: PreTrainedTokenizerBase, answer: Sequence[int], ends: Collection[int | None]) -> str:
    """The tokens up to the first end as text, stripped."""
    some = list(answer[: _end(answer, ends)])
    text: str = tokenizer.decode(some, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.strip()


def _end(answer: Sequence[int], ends: Collection[int | None]) -> int:
    """How many tokens stand before the first end."""
    return next((at for at, token in enumerate(answer) if token in ends), len(answer))
