"""Label smoothing and the z-loss, against their formulas written out."""

import math
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor

import tunescope as ts
from tunescope.tasks.answers.objective import Objective
from tunescope.tasks.kinds.generation import Generation

ROWS = [{"input": "w3 w4", "target": "w5"}, {"input": "w6", "target": "w7 w8 w9"}]


def literally(logits: Tensor, targets: Tensor, smoothing: float, z: float) -> list[float]:
    found = []
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        total = math.log(sum(math.exp(value) for value in row))
        each = [total - value for value in row]
        found.append((1 - smoothing) * each[target] + smoothing * sum(each) / len(row) + z * total**2)
    return found


@pytest.mark.parametrize(("smoothing", "z"), [(0.0, 0.0), (0.1, 0.0), (0.0, 1e-2), (0.2, 0.5)])
def test_each_token_s_loss_is_the_formula_s(smoothing: float, z: float) -> None:
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(5, 7, generator=draw, dtype=torch.float64)
    targets = torch.tensor([0, 6, 3, 3, 1])
    expected = torch.tensor(literally(logits, targets, smoothing, z), dtype=torch.float64)
    objective = Objective(smoothing, z)
    torch.testing.assert_close(objective.each(logits, targets), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(objective.mean(logits, targets), expected.mean(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_a_batch_s_loss_is_the_mean_over_its_target_tokens(family: str) -> None:
    model, words = tiny.make(family), tiny.tokenizer()
    kind = "decoder" if family == "gpt2" else "encoder-decoder"
    plain = losses(Generation(), model, words, kind)
    added = losses(Generation(label_smoothing=0.1, z_loss=0.01), model, words, kind)
    for mean, sums, tokens in (plain, added):
        torch.testing.assert_close(sums.sum() / tokens, mean, rtol=0, atol=1e-12)
    assert abs(float(added[0] - plain[0])) > 1e-3


def losses(task: Any, model: Any, words: Any, kind: str) -> tuple[Tensor, Tensor, int]:
    task = task.prepare({"train": ROWS}, words, model_kind=kind)
    batch = task.encode(ROWS, words, model_kind=kind, train=True)
    with torch.no_grad():
        mean, sums = task.loss(model, batch, words), task.row_losses(model, batch, words)
    return mean, sums, sum(len(item.target_ids) for item in batch)


@pytest.mark.parametrize("given", [{"label_smoothing": 1.0}, {"label_smoothing": -0.1}, {"z_loss": -1.0}])
def test_shares_that_are_none_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ts.UserError, match="the first is a share, from 0 to below 1, and the second at least 0"):
        Generation(**given)  # type: ignore[arg-type]
