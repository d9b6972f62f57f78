"""Where memory ends a batch goes through in more parts, and what is trained is the same."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tunescope.trial.train.loop import Problem, train
from tunescope.trial.train.microbatches import OutOfMemory, Parts
from tunescope.trial.train.settings import Settings

ROWS = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELLED = [1 + index % 4 for index in range(30)]
SETTINGS = Settings(steps=4, batch_size=10, eval_every=2, clip=0.3)


def learned(loss: Callable[[Tensor, list[int]], Tensor], parts: Parts | None) -> Tensor:
    leaf = torch.ones(5, dtype=torch.float64, requires_grad=True)
    problem = Problem(
        parameters={"w": leaf},
        rates={"w": 0.1},
        loss=lambda rows: loss(leaf, rows),
        score=lambda: float(leaf.detach().sum()),
        lengths=LABELLED,
        labelled=LABELLED,
    )
    train(replace(problem, parts=parts), SETTINGS, 0)
    return leaf.detach()


def mean(leaf: Tensor, rows: list[int]) -> Tensor:
    weights = torch.tensor([float(LABELLED[row]) for row in rows], dtype=torch.float64)
    return (weights * (ROWS[rows] @ leaf).tanh().square()).sum() / weights.sum()


def in_the_forward_pass(leaf: Tensor, rows: list[int]) -> Tensor:
    if len(rows) > 3:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return mean(leaf, rows)


class LaterInTheBatch:
    """When the gradient of the batch's first part is there already."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, leaf: Tensor, rows: list[int]) -> Tensor:
        self.calls += 1
        if len(rows) > 3 and self.calls % 2 == 0:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory")
        return mean(leaf, rows)


@pytest.mark.parametrize(("loss", "first", "then"), [(in_the_forward_pass, 1, (2, 4)), (LaterInTheBatch(), 2, (4,))])
def test_what_is_trained_in_parts_is_what_is_trained_at_once(
    loss: Callable[[Tensor, list[int]], Tensor], first: int, then: tuple[int, ...]
) -> None:
    said: list[str] = []
    torch.testing.assert_close(learned(loss, Parts(first, said.append)), learned(mean, None), rtol=0, atol=1e-12)
    assert said == [
        f"a batch of 10 rows goes through in {count} parts from here on, with the same gradient" for count in then
    ]


def test_without_being_asked_nothing_is_cut() -> None:
    with pytest.raises(OutOfMemory, match=r"Tried to allocate 2.00 GiB"):
        learned(in_the_forward_pass, None)


def test_one_row_is_no_less() -> None:
    def never(_leaf: Tensor, _rows: list[int]) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(OutOfMemory):
        learned(never, Parts(1))
