"""Modules by the names that peft gives them, which are those of the model that was wrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TASKS = {"decoder": "CAUSAL_LM", "encoder-decoder": "SEQ_2_SEQ_LM", "encoder": "FEATURE_EXTRACTION"}


def find(model: PreTrainedModel, path: str) -> nn.Module | None:
    """The module inside the base model, whatever head the file's model had around it; None where there is none."""
    inside = path.removeprefix(f"{model.base_model_prefix}.")
    try:
        found: nn.Module = model.base_model.get_submodule(inside)
    except AttributeError:
        return None
    return found if inside else None


def find_anywhere(model: PreTrainedModel, path: str) -> nn.Module | None:
    """The module inside the base model, or beside it, as the head over the vocabulary; None where there is none."""
    inside = find(model, path)
    return dict(model.named_modules()).get(path) if inside is None else inside


def paths(model: PreTrainedModel, *, headed: bool) -> dict[nn.Module, str]:
    """Module -> its name in the given model, or, headed, in the same model with a head around it."""
    around = f"{model.base_model_prefix}." if headed and model.base_model is model else ""
    return {module: f"{around}{name}" for name, module in model.named_modules()}
