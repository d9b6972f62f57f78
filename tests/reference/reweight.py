"""Anchor re-weighting (Wang et al. 2023, section 4.1) written out weight by weight, on a prompt of plain tokens.

It is registered with transformers under its own name, with transformers' own additive masks. No context stands before
the text: the demonstrations are tokens like the others.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from reference.literal import modules
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask


def literal(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    beta, words, start, form = getattr(module, "literal_reweight", (None, (), (), "scaled"))
    rows, heads, length, _ = query.shape
    every = []
    for row in range(rows):
        for head in range(heads):
            group = head // (heads // key.shape[1])
            scores = scaling * (query[row, head] @ key[row, group].T)
            if kwargs.get("softcap") is not None:
                scores = torch.tanh(scores / kwargs["softcap"]) * kwargs["softcap"]
            if kwargs.get("position_bias") is not None:
                bias = kwargs["position_bias"]
                scores = scores + bias[row if len(bias) > 1 else 0, head]
            if attention_mask is not None:
                scores = scores + attention_mask[row, 0]
            for asked in range(length):
                if beta is None or asked < start[row]:
                    every.append(torch.softmax(scores[asked], -1) @ value[row, group])
                    continue
                line = [scores[asked, column] for column in range(key.shape[2])]
                if form == "bias":
                    for k, columns in enumerate(words[row]):
                        for column in columns:
                            line[column] = line[column] + beta[head, k]
                largest = max(line).detach()
                powers = [torch.exp(score - largest) for score in line]
                total = sum(powers[1:], powers[0])
                weights = [power / total for power in powers]
                if form == "scaled":
                    for k, columns in enumerate(words[row]):
                        for column in columns:
                            weights[column] = weights[column] * torch.exp(beta[head, k])
                every.append(sum((weights[j] * value[row, group, j] for j in range(len(line))), value.new_zeros(())))
    out = torch.stack(every).view(rows, heads, length, -1)
    return out.transpose(1, 2).contiguous(), out.new_full((), math.nan)


AttentionInterface.register("literal_reweight", literal)
AttentionMaskInterface.register("literal_reweight", eager_mask)


@contextmanager
def reweighted(
    model: Any,
    betas: dict[str, Tensor],
    words: Sequence[Sequence[Sequence[int]]],
    start: Sequence[int],
    form: str,
) -> Iterator[None]:
    """betas: "decoder.0.self" -> (heads, words). words: for each row and word its columns. start: each row's first
    query that is changed."""
    before = model.config._attn_implementation
    model.set_attn_implementation("literal_reweight")
    places = modules(model)
    for name, beta in betas.items():
        places[name].literal_reweight = (beta, words, start, form)
    try:
        yield
    finally:
        for name in betas:
            del places[name].literal_reweight
        model.set_attn_implementation(before)
