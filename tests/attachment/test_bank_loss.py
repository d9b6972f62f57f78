"""How much each row of a batch weighs in what its own artifact learns, as docs/bank.md says."""

from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor

import tunescope as ts

LENGTHS = {"a": 3, "b": 5, "c": 7}
LABELS = {name: length - 1 for name, length in LENGTHS.items()}  # of a text's tokens the first is none


def batch(names: list[str]) -> dict[str, Tensor]:
    """Their texts padded on the left, with the labels of the page."""
    longest = max(LENGTHS[name] for name in names)
    at = torch.tensor([list(LENGTHS).index(name) for name in names])
    mask = torch.tensor([[0] * (longest - LENGTHS[name]) + [1] * LENGTHS[name] for name in names])
    ids = tiny.ids(len(LENGTHS), max(LENGTHS.values()))[at][:, -longest:] * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask.cumsum(1) < 2, -100)}


def whole(model: Any, given: dict[str, Tensor], **rows: list[str]) -> Tensor:
    loss: Tensor = model(**given, **rows).loss
    return loss


def of_the_page(model: Any, given: dict[str, Tensor], **rows: list[str]) -> Tensor:
    labels = given["labels"]
    logits = model(given["input_ids"], attention_mask=given["attention_mask"], **rows).logits[:, :-1]
    each = F.cross_entropy(logits.mT, labels[:, 1:], reduction="none")
    return (each.sum(1) / (labels[:, 1:] != -100).sum(1).clamp(min=1)).sum()


@pytest.mark.parametrize(("loss", "share"), [(whole, lambda n: n / sum(LABELS.values())), (of_the_page, lambda _: 1)])
def test_a_row_weighs_by_its_labels_and_by_the_sum_of_means_as_alone(
    loss: Callable[..., Tensor], share: Callable[[int], float]
) -> None:
    with tiny.Float64():  # the loss of transformers is taken in float32 else
        model = tiny.make("llama")
        held = {name: tiny.away(model, "lora:rank=2", seed) for seed, name in enumerate(LENGTHS)}
        with ts.attach(model, ts.Bank(held)) as tuned:
            tuned.train()
            loss(model, batch(list(LENGTHS)), rows=list(LENGTHS)).backward()
            together = {name: value.grad for name, value in tuned.named_parameters().items()}
            for value in tuned.parameters():
                value.grad = None
        for name, artifacts in held.items():
            with ts.attach(model, *artifacts) as tuned:
                tuned.train()
                whole(model, batch([name])).backward()  # transformers' own, of the row alone and without padding
                for key, value in tuned.named_parameters().items():
                    assert value.grad is not None and value.grad.abs().max() > 0
                    expected = share(LABELS[name]) * value.grad
                    torch.testing.assert_close(together[f"{name}/{key}"], expected, rtol=0, atol=1e-12)
