"""Cut words off from what stands before them, in chosen layers, to see whether the answer needed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.attention.edit import editing
from tunescope.attachment.attention.function import Edit
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.probes.anchors.prompts import Batch
from tunescope.tasks.prompts.demonstrations import PARTS
from tunescope.tasks.prompts.spans import Spans

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Words = Sequence[tuple[int, ...]]


def modules(model: PreTrainedModel, layers: Sequence[int]) -> list[str]:
    """The attention modules in which demonstrations read one another, of these layers."""
    stack = "encoder" if anatomy(model).kind == "encoder-decoder" else "decoder"
    return [f"{stack}.{layer}.self" for layer in layers]


@contextmanager
def isolated(model: PreTrainedModel, batch: Batch, words: Sequence[Words], names: Sequence[str]) -> Iterator[None]:
    """Within it each word attends to itself alone in the attention modules named (Wang et al. 2023, section 2.2).

    A word of several tokens still reads itself from its beginning. In an encoder it is cut off from both sides. With no
    words or no modules nothing changes.

    Args:
        words: for every prompt of the batch, its words as token positions, counted from the prompt's first token.
    """
    hidden = _hidden(batch, words, both_sides=anatomy(model).kind == "encoder-decoder")

    def cut(scores: Tensor, _kwargs: dict[str, Any]) -> Tensor:
        n_context = scores.shape[-1] - hidden.shape[-1]
        whole = torch.nn.functional.pad(hidden, (n_context, 0), value=False)
        return scores.masked_fill(whole[:, None], torch.finfo(scores.dtype).min)

    with editing(model, dict.fromkeys(names, Edit(scores=cut))):
        yield


def _hidden(batch: Batch, words: Sequence[Words], *, both_sides: bool) -> Tensor:
    """(batch, query, key), True where a word must not look."""
    n = batch.real.shape[1]
    hidden = torch.zeros(len(batch.real), n, n, dtype=torch.bool, device=batch.real.device)
    for row, (own, offset) in enumerate(zip(words, batch.offset.tolist(), strict=True)):
        for word in own:
            at = torch.tensor(word, device=hidden.device) + offset
            hidden[row, at] = True
            hidden[row, at[:, None], at[None, :]] = False
    if not both_sides:  # what follows is hidden already
        hidden &= torch.ones(n, n, dtype=torch.bool, device=hidden.device).tril()
    return hidden


def control(spans: Spans, seed: int) -> Words:
    """As many words as there are label words, drawn once for all layers from the demonstrations' other tokens.

    Each is one token, or as many in a row as its label word has, and none of them is drawn twice; the first token of
    the prompt, which has nothing to be cut off from, is never drawn. Where the demonstrations have too few other
    tokens there are fewer words, or shorter ones.

    Raises UserError where they have none at all.
    """
    random, taken = Random(seed), set(spans.of("label"))
    first = max(1, min(spans.of(*PARTS)))
    drawn: list[tuple[int, ...]] = []
    for length in sorted(map(len, spans.labels), reverse=True):
        word = _free(range(first, len(spans.ids)), length, taken, random)
        taken |= set(word)
        drawn += [word] if word else []
    if not drawn:
        raise UserError("The demonstrations have no tokens beside their label words to isolate.")
    return drawn


def _free(among: range, length: int, taken: set[int], random: Random) -> tuple[int, ...]:
    """So many tokens of these in a row that are not taken, or as many fewer as there are; () where there are none."""
    for size in range(length, 0, -1):
        starts = [start for start in among[: len(among) - size + 1] if not taken & set(range(start, start + size))]
        if starts:
            start = random.choice(starts)
            return tuple(range(start, start + size))
    return ()
