"""The formulas of "Label Words are Anchors" (Wang et al. 2023), slow and literal, with loops. No tunescope here."""

import math
from itertools import combinations

import torch
from torch import Tensor


def flows(saliency: list[list[float]], labels: list[int], query: int) -> tuple[float, float, float]:
    """S_wp, S_pq and S_ww of one row without padding: means over the three sets of pairs (i, j), j < i <= query."""
    into, out, rest = [], [], []
    for i in range(query + 1):
        for j in range(i):
            if i in labels:
                into.append(saliency[i][j])
            elif i == query and j in labels:
                out.append(saliency[i][j])
            else:
                rest.append(saliency[i][j])
    return sum(into) / len(into), sum(out) / len(out), sum(rest) / len(rest)


def flows_both_ways(saliency: list[list[float]], labels: list[int]) -> tuple[float, float, float]:
    """The same where text reads both ways and the answer, the last row, only asks: pairs (i, j), j another token."""
    into, out, rest = [], [], []
    query = len(saliency) - 1
    for i in range(query + 1):
        for j in range(query):
            if i == j:
                continue
            if i in labels:
                into.append(saliency[i][j])
            elif i == query and j in labels:
                out.append(saliency[i][j])
            else:
                rest.append(saliency[i][j])
    return sum(into) / len(into), sum(out) / len(out), sum(rest) / len(rest)


def published_flows(saliency: list[list[float]], labels: list[int], query: int) -> tuple[float, float, float]:
    """The same as the authors' code has it: label words of one token, sums over counts of pairs."""
    total = sum(saliency[i][j] for i in range(query + 1) for j in range(i))
    into = sum(saliency[p][j] for p in labels for j in range(p))
    out = sum(saliency[query][p] for p in labels)
    pairs = query * (query + 1) / 2 - sum(labels) - len(labels)
    return into / sum(labels), out / len(labels), (total - into - out) / pairs


def area(positive: list[float], negative: list[float]) -> float:
    """AUC-ROC: the share of pairs ranked rightly, ties half."""
    right = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative)
    return right / (len(positive) * len(negative))


def one_against_one(scores: list[list[float]], gold: list[int]) -> float:
    """Hand and Till's mean over pairs of classes that occur, of rows divided by their sums."""
    rows = [[value / sum(row) for value in row] for row in scores]
    found = []
    for a, b in combinations(sorted(set(gold)), 2):
        of_a = [row for row, own in zip(rows, gold, strict=True) if own == a]
        of_b = [row for row, own in zip(rows, gold, strict=True) if own == b]
        first = area([row[a] for row in of_a], [row[a] for row in of_b])
        second = area([row[b] for row in of_b], [row[b] for row in of_a])
        found.append((first + second) / 2)
    return sum(found) / len(found)


def confusion(queries: list[list[float]], keys: list[list[float]], components: int) -> list[list[float]]:
    """Distances of the keys along the queries' principal directions, of the largest; 1 on the diagonal."""
    x = torch.tensor(queries, dtype=torch.float64)
    x = x - x.mean(0)
    values, vectors = torch.linalg.eigh(x.T @ x)  # ascending: squares of the singular values
    n = min(components, *x.shape)
    order = list(range(len(values) - 1, len(values) - 1 - n, -1))
    stretch = {c: math.sqrt(max(0.0, float(values[c]))) for c in order}
    placed = [
        [stretch[c] * sum(k * float(v) for k, v in zip(key, vectors[:, c], strict=True)) for c in order] for key in keys
    ]
    apart = [[math.dist(a, b) for b in placed] for a in placed]
    most = max(map(max, apart))
    return [[1.0 if i == j else value / most for j, value in enumerate(row)] for i, row in enumerate(apart)]


def isolated_attention(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, words: list[tuple[int, ...]]
) -> Tensor:
    """(heads, n, d) of one causal row, where each word's tokens see the word alone."""
    heads, n, _ = query.shape
    out = torch.zeros_like(value)
    for h in range(heads):
        for i in range(n):
            word = next((word for word in words if i in word), None)
            seen = [j for j in range(i + 1) if word is None or j in word]
            scores = torch.stack([scaling * query[h, i] @ key[h, j] for j in seen])
            weights = scores.softmax(0)
            out[h, i] = sum(w * value[h, j] for w, j in zip(weights, seen, strict=True))
    return out
