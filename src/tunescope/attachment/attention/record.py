"""Run a model once and keep the tensors asked for. Looking at them is the probes' job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.context import Extra
from tunescope.attachment.attention.function import STATE, LayerState
from tunescope.attachment.attention.reach import reached, switched
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy, argument_names

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KEPT = ("query", "key", "value", "scores", "weights", "sink", "output", "context_key", "context_value")


@dataclass(frozen=True)
class Call:
    """What one attention module was called with: hidden states, mask, positions and the rest, by its own names."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def record(model: PreTrainedModel, inputs: Mapping[str, Any], *names: str) -> dict[str, Tensor]:
    """ "decoder.0.self.weights" -> tensor, for every attention module and every name asked for, without gradients.

    names: "query" (batch, heads, query, d), "key" and "value" (batch, kv_heads, keys, d) of the text alone, after
    rotary positions, "weights" (batch, heads, query, contexts + keys) with the contexts' columns first, "scores" before
    the softmax, the lowest number where a key is hidden, "sink" (heads,), a score that a query may give to nothing,
    the lowest number where the model has none, "output" (batch, heads, query, d), "context_key" and
    "context_value" (kv_heads, contexts, d), the same for all rows and with 0 contexts where nothing stands before the
    text. In an encoder a soft prompt, or words, are among the text's tokens and no context. It sees whatever is
    attached to the model at the time, and leaves it as it was.

    model: a transformers model. inputs: what it is called with, such as input_ids (batch, tokens).

    Raises UserError for an unknown name, and for a family whose attention is not reached.
    """
    with _keeping(model, names) as kept:
        model(**_few_logits(model, inputs) | dict(inputs))
    return kept


def record_calls(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, Call]:
    """ "decoder.0.self" -> what that attention module was called with in one run, without a cache and gradients.

    Raises UserError for a family whose attention is not reached.
    """
    calls: dict[str, Call] = {}
    without_cache = {} if anatomy(model).kind == "encoder" else {"use_cache": False}

    def caller(name: str) -> Any:
        def keep(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls[name] = Call(args, dict(kwargs))

        return keep

    with ExitStack() as stack:
        stack.enter_context(_keeping(model, ("output",)))  # the same arithmetic as where weights are kept
        for found in reached(model):
            stack.callback(found.module.register_forward_pre_hook(caller(found.name), with_kwargs=True).remove)
        model(**_few_logits(model, inputs) | dict(inputs) | without_cache)
    return calls


def _few_logits(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Only a loss looks at them, and over a large vocabulary those of all places are more than all else that is kept.

    By place: where a number is given, Gemma 4 has no other queries either in the layers that share others' keys.
    """
    is_asked = inputs.get("labels") is not None
    return {"logits_to_keep": torch.tensor([-1])} if "logits_to_keep" in argument_names(model) and not is_asked else {}


def replay(model: PreTrainedModel, calls: Mapping[str, Call], *names: str) -> dict[str, Tensor]:
    """What `record` keeps, where each attention module is run alone on the call given, in the model's state now.

    Deltas inside the module act and contexts stand before its keys; nothing that one module gives reaches another, so
    what differs between two replays of the same calls is what the module itself does. Contexts and changed parameters
    are those of the model's last run: run the model in that state first.

    Raises UserError for an unknown name, and for a family whose attention is not reached.
    """
    with _keeping(model, names) as kept:
        for found in reached(model):
            found.module(*calls[found.name].args, **calls[found.name].kwargs)
    return kept


@contextmanager
def _keeping(model: PreTrainedModel, names: tuple[str, ...]) -> Iterator[dict[str, Tensor]]:
    """Within it every attention module reports; afterwards their states are as before."""
    if not names or not set(names) <= set(KEPT):
        raise UserError(f"record keeps {', '.join(KEPT)}; it was asked for {', '.join(names) or 'nothing'}.")
    kept: dict[str, Tensor] = {}
    places = {found.module: found.name for found in reached(model)}

    def keep(module: nn.Module, seen: dict[str, Tensor | None]) -> None:
        have = seen | _contexts(module.__dict__[STATE].extras, seen) | {"sink": _sink(seen)}
        for name in names:
            value = have[name]
            assert value is not None
            kept[f"{places[module]}.{name}"] = value.detach()

    bare = [module for module in places if STATE not in module.__dict__]
    try:
        for module in places:
            module.__dict__.setdefault(STATE, LayerState()).keep = keep
        with switched(model), torch.no_grad():
            yield kept
    finally:
        for module in places:
            module.__dict__[STATE].keep = None
        for module in bare:
            del module.__dict__[STATE]


def _sink(seen: Mapping[str, Tensor | None]) -> Tensor:
    """(heads,), of a model without sinks the lowest number, to which no query gives anything."""
    query, sink = seen["query"], seen["sink"]
    assert query is not None
    none = torch.full(query.shape[1:2], torch.finfo(query.dtype).min, dtype=query.dtype, device=query.device)
    return none if sink is None else sink


def _contexts(extras: tuple[Extra, ...], seen: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """All contexts' keys and values, one after the other, in the precision of the text's and where it is."""
    made = {}
    for name in ("key", "value"):
        like = seen[name]
        assert like is not None
        parts = [getattr(extra, name).to(like) for extra in extras]
        none = like[:, :, :0] if parts and parts[0].dim() == 4 else like[0, :, :0]
        made[f"context_{name}"] = torch.cat([none, *parts], -2)
    return made
