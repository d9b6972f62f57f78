"""The tokens whose embeddings are nearest to each virtual token, by cosine (Lester et al. 2021, section 7)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tunescope.errors import UserError
from tunescope.looking.finding import Finding
from tunescope.looking.seen import Seen

NEEDS_TEXT = False


class Neighbours(NamedTuple):
    """Nearest first: ids and cosines, both (n, count)."""

    ids: Tensor
    cosine: Tensor


def neighbours(rows: Tensor, table: Tensor, count: int = 5) -> Neighbours:
    """The `count` rows of a table nearest to each row, by cosine. A row of zeros has cosine 0 with everything.

    That a virtual token lies near a word does not say that it acts like it: trained prompts are often near to none,
    and equally near tokens are told apart by nothing.

    Args:
        rows: (n, width), virtual tokens.
        table: (vocabulary, width), the model's embeddings, at any scale.
    """
    cosine = normalize(rows.double(), dim=-1) @ normalize(table.double(), dim=-1).T
    nearest = cosine.topk(min(count, len(table)), -1)
    return Neighbours(nearest.indices, nearest.values)


def look(seen: Seen) -> Finding:
    """The nearest words of each virtual token.

    Raises UserError where nothing that is attached stands in the place of tokens.
    """
    if not seen.virtual or seen.table is None:
        raise UserError(
            f"Probe neighbours: {seen.attached} has no embeddings in the place of tokens; soft and text have. "
            "For a prefix type: tunescope probe prefix_bias."
        )
    rows: list[tuple[str | float, ...]] = []
    numbers: dict[str, Any] = {"nearest_to_chance": (chance := _chance(seen.table))}
    for method, embeddings in seen.virtual.items():
        found = neighbours(embeddings, seen.table)
        listed = [
            [(seen.word(int(i)), float(cosine)) for i, cosine in zip(*pair, strict=True)]
            for pair in zip(found.ids, found.cosine, strict=True)
        ]
        numbers[method] = [[{"token": word, "cosine": cosine} for word, cosine in near] for near in listed]
        for place, near in enumerate(listed):
            rest = "  ".join(f"{word} {cosine:.2f}" for word, cosine in near[1:])
            rows.append((f"{method.partition(':')[0]} {place}", near[0][0], near[0][1], rest))
    return Finding(
        heading="Words near the virtual tokens",
        says="The tokens of the vocabulary whose embeddings have the largest cosine with each virtual token. A random "
        f"direction comes to {chance:.2f} with its own nearest.",
        not_said="A virtual token near a word need not act like it, and one far from every word may act like many.",
        columns=("virtual token", "nearest", "cosine", "next"),
        rows=rows,
        numbers=numbers,
    )


def _chance(table: Tensor) -> float:
    """The cosine of a random direction with its nearest row, the mean of a hundred."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(100, table.shape[1], generator=generator, dtype=torch.float64)
    return float(neighbours(directions.to(table.device), table, 1).cosine.mean())
