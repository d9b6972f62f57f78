"""A decoder with rows added to its vocabulary: what a token context needs to be text to any server."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def with_rows(model: PreTrainedModel, rows: Tensor) -> Any:
    """A model of the same class whose last tokens are embedded as `rows`, its head untied; the given is unchanged.

    Every new row of the head is the mean of the old rows, so its logit is the mean of the other logits: greedy decoding
    never takes it, also in a server that knows of no suppressed tokens, and sampling at temperature 1 takes it with a
    probability of 1 / vocabulary at most. Rows of zeros would win wherever all other logits are negative, as GPT-2's.

    Args:
        rows: (n, width), as the model's first layer is to see them.
    """
    table, head = anatomy(model).table, model.get_output_embeddings()
    state = dict(model.state_dict())
    state[f"{_name(model, table)}.weight"] = torch.cat([table.weight.detach(), unscaled(table, rows).to(table.weight)])
    for part in ("weight", "bias"):
        value = getattr(head, part, None)
        if value is not None:
            state[f"{_name(model, head)}.{part}"] = _with_means(value.detach(), len(rows))
    config = copy.deepcopy(model.config)
    config.vocab_size = len(table.weight) + len(rows)
    config.tie_word_embeddings = False
    with torch.device("meta"):
        made = type(model)(config).eval()
    made.load_state_dict(state, assign=True)
    made.generation_config = copy.deepcopy(model.generation_config)
    return made


def unscaled(table: nn.Module, rows: Tensor) -> Tensor:
    """What a table must hold to give `rows`: some families (Gemma) multiply what they look up by a constant.

    Raises UserError for a table that does more than that.
    """
    by = scale(table)
    return rows if by == 1 else (rows.double() / by).to(rows.dtype)


def scale(table: nn.Module) -> float:
    """The constant by which the table multiplies its rows.

    Raises UserError for a table that does more than that.
    """
    weight = table.get_parameter("weight")
    one = torch.zeros(1, dtype=torch.long, device=weight.device)
    with torch.no_grad():
        ones: Tensor = functional_call(table, {"weight": weight.new_ones(()).expand(weight.shape)}, (one,))
        twos: Tensor = functional_call(table, {"weight": weight.new_full((), 2.0).expand(weight.shape)}, (one,))
    by = float(ones.flatten()[0])
    if not (bool((ones == by).all()) and bool((twos == 2 * ones).all()) and by):
        raise UserError(
            f"{type(table).__name__} does more than look up rows and multiply them by a constant, so no row can be "
            "added that gives a trained embedding. Use --to embeds."
        )
    return by


def _name(model: nn.Module, wanted: nn.Module) -> str:
    found: str = next(name for name, module in model.named_modules() if module is wanted)
    return found


def _with_means(value: Tensor, count: int) -> Tensor:
    """Rows of a head (or its biases), and `count` times their mean."""
    mean = value.double().mean(0, keepdim=True).to(value.dtype)
    return torch.cat([value, mean.expand(count, *value.shape[1:])])
