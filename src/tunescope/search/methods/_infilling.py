"""Spans that one T5-style model writes for many texts at once: a beam over what all of them make likely.

Gao et al. 2021 (LM-BFF, arXiv:2012.15723), section 5.2: the score of a filling is the sum over the training examples of
its log-probability given each. The released code takes the log-softmax of the mean logits instead, which ranks others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.site_hooks import logits_at
from tunescope.errors import UserError
from tunescope.tasks.answers.batches import evaluating, exact, pad_id, padded
from tunescope.tasks.answers.likelihood import decoder_start
from tunescope.tasks.prompts.templates import Ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ROWS = 64  # of the decoder at once


@dataclass(frozen=True)
class Filling:
    """A filling of every span, the same for all texts. score: its log-probability, the mean over the texts.

    tokens: what was written, the sentinels that part the spans and end the last with it. The score counts them.
    """

    spans: tuple[Ids, ...]
    score: float
    tokens: Ids = ()


@dataclass(frozen=True)
class Allowed:
    """What may be written.

    sentinels: one more than there are spans; the first is given, each next one ends a span. end: ends the last as well.
    text: the tokens of a span. most: how many of them, all spans together.
    """

    sentinels: Ids
    end: int
    text: Ids
    most: int

    @property
    def n_spans(self) -> int:
        return len(self.sentinels) - 1

    def ends(self, span: int) -> Ids:
        """The tokens that end the span of that number."""
        last = span == self.n_spans - 1
        return (self.sentinels[span + 1], self.end) if last else (self.sentinels[span + 1],)


def sentinels(tokenizer: PreTrainedTokenizerBase, count: int) -> Ids:
    """The ids of T5's first sentinels.

    Raises UserError for a tokenizer that does not have them.
    """
    names = [f"<extra_id_{number}>" for number in range(count)]
    found = tuple(tokenizer.convert_tokens_to_ids(names))
    if None in found or tokenizer.unk_token_id in found:
        raise UserError(
            f"Templates are written by a model of the T5 kind, and this tokenizer has no {names[-1]}. Give the folder "
            "of a T5, as in template:generator=FOLDER"
        )
    return found


def filled(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[Ids], allowed: Allowed, beam: int
) -> list[Filling]:
    """The best fillings, best first, at most `beam` of them, no two with the same spans.

    texts: the encoder's side of each example, with the sentinels where the spans are. In every step the `beam` best of
    all that is finished and all that can be written next are kept; of equals the smaller token ids. With a beam as wide
    as there are fillings this is every filling, scored.
    """
    open_ones = [Filling(((),), 0.0)]
    done: list[Filling] = []
    with evaluating(model):
        states, mask = _read(model, tokenizer, texts)
        while open_ones:
            scores = _next(model, states, mask, [(allowed.sentinels[0], *one.tokens) for one in open_ones])
            fresh = [new for one, row in zip(open_ones, scores, strict=True) for new in _grown(one, row, allowed, beam)]
            kept = sorted([*fresh, *done], key=lambda one: (-one.score, one.tokens))[:beam]
            done = [one for one in kept if _is_done(one, allowed)]
            open_ones = [one for one in kept if not _is_done(one, allowed)]
    best: dict[tuple[Ids, ...], Filling] = {}
    for one in done:
        best.setdefault(one.spans, one)
    return list(best.values())


def _is_done(one: Filling, allowed: Allowed) -> bool:
    return bool(one.tokens) and len(one.spans) == allowed.n_spans and one.tokens[-1] in allowed.ends(len(one.spans) - 1)


def _grown(one: Filling, scores: Tensor, allowed: Allowed, beam: int) -> list[Filling]:
    """The `beam` best continuations by one token."""
    room = sum(map(len, one.spans)) < allowed.most
    ends = allowed.ends(len(one.spans) - 1)
    tokens = [*ends, *(allowed.text if room else ())]
    found: list[Filling] = []
    for value, index in zip(*scores[tokens].sort(descending=True, stable=True), strict=True):
        if len(found) == beam:
            break
        found.append(_with(one, tokens[int(index)], one.score + float(value), ends, allowed))
    return found


def _with(one: Filling, token: int, score: float, ends: Ids, allowed: Allowed) -> Filling:
    written = (*one.tokens, token)
    if token not in ends:
        return Filling((*one.spans[:-1], (*one.spans[-1], token)), score, written)
    more = ((),) if len(one.spans) < allowed.n_spans else ()
    return Filling((*one.spans, *more), score, written)


def _read(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """The encoder's states (texts, tokens, width) and mask, once for the whole search."""
    ids, mask = padded(texts, pad_id(tokenizer), model.device, left=False)
    encoder = model.get_encoder()
    parts = [
        encoder(input_ids=ids[start : start + ROWS], attention_mask=mask[start : start + ROWS]).last_hidden_state
        for start in range(0, len(ids), ROWS)
    ]
    return torch.cat(parts), mask


def _next(model: PreTrainedModel, states: Tensor, mask: Tensor, written: Sequence[Ids]) -> Tensor:
    """(written, vocabulary): the mean over the texts of each next token's log-probability, float64.

    Raises UserError for scores that are no numbers, which no order can be made of.
    """
    from transformers.modeling_outputs import BaseModelOutput

    begin, n_texts = decoder_start(model), len(states)
    ids = torch.tensor([[begin, *tokens] for tokens in written], device=states.device)  # every step adds one to each
    found: list[Tensor] = []
    for some in torch.split(ids, max(1, ROWS // n_texts)):
        total = torch.zeros((), dtype=torch.float64)
        for own, seen in zip(torch.split(states, ROWS), torch.split(mask, ROWS), strict=True):
            rows = some.repeat_interleave(len(own), 0)  # row: one of the written, then a text
            last = torch.arange(rows.shape[1], device=rows.device) == rows.shape[1] - 1
            with logits_at(model, last.expand(len(rows), -1)):
                out = model(
                    encoder_outputs=BaseModelOutput(last_hidden_state=own.repeat(len(some), 1, 1)),
                    attention_mask=seen.repeat(len(some), 1),
                    decoder_input_ids=rows,
                    use_cache=False,
                )
            scores = exact(out.logits).cpu().double().log_softmax(-1)
            total = total + scores.view(len(some), len(own), -1).sum(1)
        found.append(total / n_texts)
    if (scores := torch.cat(found)).isnan().any():
        raise UserError(
            "template: the scores of the model that writes are no numbers (NaN): its weights may hold some, or its "
            "precision overflow, as T5's does in float16. Load it in float32."
        )
    return scores
