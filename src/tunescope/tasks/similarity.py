"""Which training rows are most like a query, class by class, and several demonstration sets as one answer.

Gao et al. 2021 (LM-BFF, arXiv:2012.15723), section 6: demonstrations are drawn from the half of each class that is most
like the query, and the answers behind several draws are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tunescope.errors import UserError
from tunescope.tasks.batching import batches, evaluating, pad_id, padded


def similar(
    rows: Tensor, query: Tensor, labels: Sequence[int], *, share: float = 0.5, without: int | None = None
) -> dict[int, tuple[int, ...]]:
    """Label -> indices of its rows that are most like the query, best first; of equals the earlier row.

    Args:
        rows: (n, width), what an encoder makes of each row.
        query: (width,).
        labels: n of them.
        share: of each class, rounded down, that stays; one row at least.
        without: the query's own row, where it is one of them: it is never its own demonstration.

    Raises:
        UserError: a share outside (0, 1], or a class that has no other row.
    """
    if not 0 < share <= 1:
        raise UserError(f"similar(share={share:g}) is the part of each class that stays: above 0, and 1 at most.")
    cosine = F.cosine_similarity(rows, query[None], dim=-1).tolist()
    kept = {}
    for label in sorted(set(labels)):
        members = [index for index, one in enumerate(labels) if one == label and index != without]
        if not members:
            raise UserError(
                f"similar: class {label} has no row beside the query's own. Give two rows a class at least."
            )
        ordered = sorted(members, key=lambda index: -cosine[index])
        kept[label] = tuple(ordered[: max(1, int(len(members) * share))])
    return kept


def one_of_each(kept: dict[int, tuple[int, ...]], n_sets: int, seed: int) -> list[tuple[int, ...]]:
    """`n_sets` draws of one row of each class, in the order of the classes; the same for the same seed."""
    draw = Random(seed)
    return [tuple(draw.choice(members) for members in kept.values()) for _ in range(n_sets)]


def averaged(log_probabilities: Tensor) -> Tensor:
    """(sets, rows, words) -> (rows, words): the mean log-probability over demonstration sets, not normalised again.

    Its largest is the label whose probabilities have the largest geometric mean.
    """
    return log_probabilities.mean(0)


def pooled(model: Any, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 32) -> Tensor:
    """(texts, width): the mean over each text's tokens, special ones too, of the last hidden states.

    Any model: of an encoder-decoder the encoder's states. Longer texts are cut to the model's positions.
    """
    from tunescope.tasks.checking import positions

    limit = positions(model.config, tokenizer)
    encoded = tokenizer(list(texts), truncation=limit is not None, max_length=limit, verbose=False)["input_ids"]
    base = model.base_model
    entry = base.get_encoder() if model.config.is_encoder_decoder else base
    found: dict[int, Tensor] = {}
    with evaluating(model):
        for some in batches([len(one) for one in encoded], batch_size):
            ids, mask = padded([encoded[index] for index in some], pad_id(tokenizer), model.device, left=False)
            states = entry(input_ids=ids, attention_mask=mask).last_hidden_state
            means = (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
            found |= zip(some, means, strict=True)
    return torch.stack([found[index] for index in range(len(texts))])
