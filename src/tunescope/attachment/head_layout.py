"""How transformers' own classes read and map states into logits, as a form of `Head`; found by running them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tunescope.methods.deltas.head import ACTIVE, Head

if TYPE_CHECKING:
    from transformers import PreTrainedModel

AUTO = {
    "SEQUENCE_CLASSIFICATION": "AutoModelForSequenceClassification",
    "TOKEN_CLASSIFICATION": "AutoModelForTokenClassification",
}
LENGTHS = (5, 3, 4)  # of the rows that a class is tried on
LABELS = 3


@dataclass(frozen=True)
class HeadLayout:
    """A head of transformers: its form, and what its tensors are called there, by their names in `Head`."""

    auto: str
    form: Head
    names: dict[str, str]

    def spec(self, n_labels: int) -> Head:
        return replace(self.form, n_labels=n_labels)

    def modules(self) -> list[str]:
        """What modules_to_save has to name."""
        return sorted({name.split(".")[-3 if "pooler" in name else 0] for name in self.names.values()})


def find_layout(model: PreTrainedModel, task: str, *, own_pooler: bool) -> HeadLayout | None:
    """The layout of the family's class for the task; None where there is none, or no form of `Head` gives the same.

    task: a key of AUTO. own_pooler: the model's pooler counts as part of the head.
    """
    shell = _shell(model, task)
    if shell is None:
        return None
    width, pad = shell.config.hidden_size, shell.config.pad_token_id
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(len(LENGTHS), max(LENGTHS), width, generator=draw, dtype=torch.float64)
    pooled = torch.randn(len(LENGTHS), width, generator=draw, dtype=torch.float64)
    pooler = getattr(getattr(shell, shell.base_model_prefix), "pooler", None) if own_pooler else None
    if own_pooler and pooler is None:
        return None
    shell.add_module(shell.base_model_prefix, _Given(states, pooled, pooler))
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.where(mask, (pad + 1) % 2, pad)
    tensors = {
        name: torch.randn(value.shape, generator=draw, dtype=torch.float64) / width**0.5
        for name, value in shell.named_parameters()
    }
    names = _parts(tensors, width)
    try:
        expected = functional_call(shell.eval(), tensors, (), {"input_ids": ids, "attention_mask": mask.long()}).logits
    except Exception:  # a class of any family, on made-up states: whatever it raises, it is none of these
        return None
    for form in _forms(names) if names else ():
        p = {part: tensors[name] for part, name in names.items()}
        got = form.apply(p, *[_read(form, states, pooled)] * 2)
        if got.shape == expected.shape and (got - expected).abs().max() < 1e-9:
            return HeadLayout(AUTO[task], form, names)
    return None


class _Given(nn.Module):
    """Stands in for a base model: gives the same states whatever it is asked."""

    def __init__(self, states: Tensor, pooled: Tensor, pooler: nn.Module | None) -> None:
        super().__init__()
        self.states, self.pooled = states, pooled
        self.pooler = pooler

    def forward(self, *_: object, **__: object) -> Any:
        from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions as Output

        pooled = self.pooled if self.pooler is None else self.pooler(self.states)
        return Output(last_hidden_state=self.states, pooler_output=pooled)


def _shell(model: PreTrainedModel, task: str) -> Any:
    """The family's class for the task, without weights, of LABELS; None where it has none, or is as narrow as that."""
    from transformers.models.auto import modeling_auto

    found = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING").get(type(model.config), None)
    if found is None or getattr(model.config, "hidden_size", LABELS) == LABELS:  # shapes are to tell the maps apart
        return None
    config = copy.deepcopy(model.config)
    config.num_labels = LABELS
    config.pad_token_id = config.pad_token_id if getattr(config, "pad_token_id", None) is not None else 0
    with torch.device("meta"):
        return found(config)


def _parts(tensors: dict[str, Tensor], width: int) -> dict[str, str]:
    """`Head`'s names -> the class's, by shape; empty where there are others, or two of a shape."""
    shapes = {
        (LABELS, width): "weight",
        (LABELS,): "bias",
        (width, width): "dense_weight",
        (width,): "dense_bias",
    }
    found = {shapes.get(tuple(value.shape), ""): name for name, value in tensors.items()}
    return {} if "" in found or "weight" not in found or len(found) < len(tensors) else found


def _forms(names: dict[str, str]) -> Iterator[Head]:
    """The forms of `Head` that have these parts."""
    dense = tuple(ACTIVE) if "dense_weight" in names else ("none",)
    for token, active in product(("first", "last", "every"), dense):
        form = Head(token=token, dense=active, bias="bias" in names)  # type: ignore[arg-type]
        if ("dense_bias" in names) == (form.bias and active != "none"):
            yield form
            if token == "first":
                yield replace(form, pooler=True)


def _read(form: Head, states: Tensor, pooled: Tensor) -> Tensor:
    """What a head of that form reads of the rows that a class is tried on."""
    if form.token == "every" or form.pooler:
        return pooled if form.pooler else states
    where = [0] * len(LENGTHS) if form.token == "first" else [length - 1 for length in LENGTHS]
    return states[torch.arange(len(LENGTHS)), where]
