"""Which rows go into which step: a function of the seed and the step.

So every arm sees the same data in the same order, and a resumed run needs no state.
"""

from collections.abc import Iterator, Sequence

import torch

CHUNK = 50  # batches among which rows are sorted by length


def batches(lengths: Sequence[int], batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Every row once, rows of like length together, the last batch possibly short.

    Rows are shuffled, sorted within chunks, and the batches shuffled. A chunk is at most a quarter of the
    data: sorting all of a small set would put the same rows together in every epoch.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    chunk = batch_size * max(1, min(CHUNK, len(lengths) // (4 * batch_size)))
    rows = [
        row
        for start in range(0, len(order), chunk)
        for row in sorted(order[start : start + chunk], key=lengths.__getitem__)
    ]
    cut = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    return [cut[index] for index in torch.randperm(len(cut), generator=generator).tolist()]


def stream(lengths: Sequence[int], batch_size: int, seed: int, start: int = 0) -> Iterator[list[int]]:
    """The batches of steps `start`, `start` + 1, ... without end."""
    per_epoch = -(-len(lengths) // batch_size)
    epoch, skip = divmod(start, per_epoch)
    while True:
        yield from batches(lengths, batch_size, seed, epoch)[skip:]
        epoch, skip = epoch + 1, 0
