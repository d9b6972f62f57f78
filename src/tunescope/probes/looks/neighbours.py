"""The tokens whose embeddings are nearest to each virtual token, by cosine (Lester et al. 2021, section 7)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tunescope.errors import UserError
from tunescope.probes.seen import Seen
from tunescope.report.finding import Finding

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


class Off(NamedTuple):
    """How far rows are from every row of a table: ids (n,) of the nearest by distance, and the distances (n,)."""

    ids: Tensor
    distance: Tensor


def off(rows: Tensor, table: Tensor) -> Off:
    """The Euclidean distance from each row to the nearest row of the table, at the same scale; the first of equals."""
    nearest = torch.cdist(rows.double(), table.double()).min(-1)
    return Off(nearest.indices, nearest.values)


def spacing(table: Tensor, sample: int = 100) -> float:
    """The median distance from a token to its nearest other token, over a random sample of tokens."""
    draw = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(table), generator=draw)[:sample].to(table.device)
    distance = torch.cdist(table[chosen].double(), table.double())
    distance[torch.arange(len(chosen), device=table.device), chosen] = torch.inf
    return float(distance.min(-1).values.median())


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
    apart = spacing(seen.table)
    numbers: dict[str, Any] = {"nearest_to_chance": (chance := _chance(seen.table)), "token_to_token": apart}
    for number, (method, embeddings) in enumerate(seen.virtual.items(), 1):
        short = method.partition(":")[0] if len(seen.virtual) == 1 else f"{number}. {method.partition(':')[0]}"
        found = neighbours(embeddings, seen.table)
        listed = [
            [(seen.word(int(i)), float(cosine)) for i, cosine in zip(*pair, strict=True)]
            for pair in zip(found.ids, found.cosine, strict=True)
        ]
        numbers[method] = [[{"token": word, "cosine": cosine} for word, cosine in near] for near in listed]
        away = off(embeddings, seen.table)
        by_distance = [(seen.word(int(i)), float(far)) for i, far in zip(*away, strict=True)]
        numbers[f"{method} by distance"] = [{"token": word, "distance": far} for word, far in by_distance]
        for place, (near, (word, far)) in enumerate(zip(listed, by_distance, strict=True)):
            rest = "  ".join(f"{word} {cosine:.2f}" for word, cosine in near[1:])
            rows.append((f"{short} {place}", *near[0], word, far, rest))
    return Finding(
        heading="Words near the virtual tokens",
        says="The tokens of the vocabulary whose embeddings have the largest cosine with each virtual token. A random "
        f"direction comes to {chance:.2f} with its own nearest. By distance: the token whose embedding is least far; a "
        f"token itself is {apart:.2f} from its nearest other token, the median of a sample.",
        not_said="A virtual token near a word need not act like it, and one far from every word may act like many. "
        "What its nearest tokens score: tunescope search MODEL DATA --method projected:artifact=DIR.",
        columns=("virtual token", "nearest", "cosine", "by distance", "distance", "next"),
        rows=rows,
        numbers=numbers,
    )


def _chance(table: Tensor) -> float:
    """The cosine of a random direction with its nearest row, the mean of a hundred."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(100, table.shape[1], generator=generator, dtype=torch.float64)
    return float(neighbours(directions.to(table.device), table, 1).cosine.mean())
