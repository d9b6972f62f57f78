"""Prompts with demonstrations as batches: which columns are label words, and which is the query's last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.system.label_pairs import typed
from tunescope.tasks.answers.batch_trial import takes_left_padding
from tunescope.tasks.answers.batches import batches, decoder_keywords, pad_id, padded
from tunescope.tasks.answers.likelihood import decoder_start
from tunescope.tasks.prompts.spans import Spans
from tunescope.tasks.task import Encoded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Choices:
    """How the classes are told apart: by the token that follows `lead`, which all label words begin with.

    tokens: one a class, all different. For words of one token this is the whole answer; of longer words it is the first
    token that tells them apart, and what follows it is not looked at.
    """

    lead: tuple[int, ...]
    tokens: tuple[int, ...]


def choices(words: Mapping[str, Sequence[int]]) -> Choices:
    """The classes' words, as token ids by label, taken apart.

    Raises UserError where two of them go on from the common lead with the same token.
    """
    every = list(words.values())
    n = 0
    while all(len(word) > n + 1 for word in every) and len({word[n] for word in every}) == 1:
        n += 1
    for one, other in combinations(words, 2):
        if words[one][n] == words[other][n]:
            raise UserError(
                f"The words of labels {one!r} and {other!r} begin with the same token, by which the answer is read "
                f"here. Choose others: {typed([one, other], more=len(words) > 2)}"
            )
    return Choices(tuple(every[0][:n]), tuple(word[n] for word in every))


@dataclass(frozen=True)
class Prompt:
    """One query behind its demonstrations."""

    spans: Spans
    query: Encoded

    @property
    def ids(self) -> tuple[int, ...]:
        return self.spans.ids + self.query.input_ids


@dataclass(frozen=True)
class Batch:
    """Prompts as a model's inputs.

    inputs: keywords of the model; a decoder's text is padded on the left, so the query ends in the last column.
    offset: (batch,), the column of each prompt's first token.
    real: (batch, columns), True at tokens.
    answer: the decoder's column whose next token tells the classes apart: its last.
    """

    prompts: tuple[Prompt, ...]
    inputs: dict[str, Any]
    offset: Tensor
    real: Tensor
    answer: int

    def columns(self, positions: Sequence[Sequence[int]]) -> Tensor:
        """(batch, columns), True at the positions given of every prompt, counted from its first token."""
        found = torch.zeros_like(self.real)
        for row, places in enumerate(positions):
            found[row, torch.tensor(places, dtype=torch.long, device=found.device) + self.offset[row]] = True
        return found

    def words(self, count: int) -> list[Tensor]:
        """(batch, columns) for each of the demonstrations, True at its label word."""
        return [self.columns([prompt.spans.labels[number] for prompt in self.prompts]) for number in range(count)]

    @property
    def labels(self) -> Tensor:
        """(batch, columns), True at the tokens of label words."""
        return self.columns([prompt.spans.of("label") for prompt in self.prompts])


def batch(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], lead: Sequence[int] = ()
) -> Batch:
    """The prompts as one batch for a decoder or an encoder-decoder (there they stand on the encoder's side).

    lead: what every answer begins with, already read. A decoder's are read as each alone where they are a `cut`.

    Raises UserError for an encoder, whose tokens look at those behind them too, and for a prompt that is
    longer than the model.
    """
    which = anatomy(model).kind
    if which == "encoder":
        raise UserError("In an encoder label words look at the query as the query looks at them: take a decoder.")
    check_room(model, prompts, len(lead))
    rows = [prompt.ids + tuple(lead if which == "decoder" else ()) for prompt in prompts]
    ids, mask = padded(rows, pad_id(tokenizer), model.device, left=which == "decoder")
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if which == "decoder":
        last = torch.full((len(ids),), ids.shape[1] - 1, device=ids.device)
        inputs |= decoder_keywords(model, mask, last)
    else:
        begin = torch.tensor([[decoder_start(model), *lead]], device=ids.device)
        inputs["decoder_input_ids"] = begin.expand(len(ids), -1)
    answer = ids.shape[1] - 1 if which == "decoder" else len(lead)
    return Batch(tuple(prompts), inputs, mask.argmax(1), mask.bool(), answer)


def cut(model: PreTrainedModel, prompts: Sequence[Prompt], lead: Sequence[int], size: int) -> list[list[int]]:
    """Numbers of the prompts that run together, at most so many: in their order, where the model takes padding on the
    left; else those of one length, so that none is padded.
    """
    lengths = [len(prompt.ids) + len(lead) for prompt in prompts]
    if not takes_left_padding(model, lengths, size):
        return batches(lengths, size, alike=True)
    return [list(range(start, min(start + size, len(prompts)))) for start in range(0, len(prompts), size)]


def check_room(model: PreTrainedModel, prompts: Sequence[Prompt], extra: int = 0) -> None:
    """UserError for a prompt that is longer than the model. extra: tokens behind it, which an encoder does not read."""
    limit, extra = getattr(model.config, "max_position_embeddings", None), extra * (anatomy(model).kind == "decoder")
    longest = max(prompts, key=lambda prompt: len(prompt.ids))
    if limit is not None and len(longest.ids) + extra > limit:
        raise UserError(
            f"A prompt has {len(longest.ids) + extra} tokens ({len(longest.spans.ids)} of demonstrations), and the "
            f"model takes {limit}: give fewer demonstrations (--k) or shorter rows."
        )
