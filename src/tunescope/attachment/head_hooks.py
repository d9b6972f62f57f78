"""A classification head in a model: where it reads, and where its logits come out."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.site_hooks import TEXT_IDS, TEXT_MASK, Acting, as_computed, refuse_tuple
from tunescope.errors import UserError
from tunescope.methods.artifact import Params
from tunescope.models.anatomy import argument_names
from tunescope.models.positions import seen_by

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LAST, EVERY = TOKENS = ("last token", "every token")  # where a head may read in a decoder


@contextmanager
def pooled(model: PreTrainedModel, spec: Acting, tensors: Params) -> Iterator[None]:
    """The base model's output gets `.logits`, made by the head from what it reads: a token of each row, or its pooler.

    In a model with a classifier of its own, the head's logits stand in for what that gives.
    """
    names = argument_names(model.base_model)
    own = classifier(model)
    made = None if own is None else _Made()

    def add(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        refuse_tuple(output)
        given = dict(zip(names, args, strict=False)) | kwargs
        if spec.reads == "pooler":
            _check_first_column(module, given)
            x = output.pooler_output
        else:
            x = _read(spec.reads, module, given, output.last_hidden_state)
        output["logits"] = logits = spec.apply(as_computed(tensors, x), x, x)
        if made is not None:
            made.put(logits)
        return output

    handles = [model.base_model.register_forward_hook(add, with_kwargs=True)]
    if made is not None and own is not None:
        handles.append(model.register_forward_pre_hook(made.begin))
        handles.append(own.register_forward_hook(made.instead))
        handles.append(model.register_forward_hook(made.end, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def classifier(model: PreTrainedModel) -> nn.Module | None:
    """The last map of a model with a classification head of its own; None for one without."""
    found = getattr(model, "classifier", None) or getattr(model, "score", None)
    return found if model.base_model is not model and isinstance(found, nn.Module) else None


def _read(reads: str, base: nn.Module, given: dict[str, Any], states: Tensor) -> Tensor:
    """The states that a head reads: of every token, or (batch, width) of each row's first real or last one."""
    if reads == EVERY:
        return states
    at = torch.arange(states.shape[1], device=states.device)
    mask = base.__dict__.get(TEXT_MASK, given.get("attention_mask"))
    config: Any = base.config
    ids, pad = (
        base.__dict__.get(TEXT_IDS, given.get("input_ids")),
        getattr(config.get_text_config(), "pad_token_id", None),
    )
    mask = _of_columns(mask)
    if reads == LAST and ids is not None and pad is not None:
        mask = ids != pad
    if mask is None:
        real = torch.ones_like(states[..., 0], dtype=torch.long)
    else:
        n = states.shape[1]
        real = mask[:, : seen_by(given) + n][:, -n:].to(states.device, torch.long)  # what lies in the cache is in front
    where = (at * real if reads == LAST else real).argmax(1)
    return states[torch.arange(len(states), device=states.device), where]


def _of_columns(mask: Tensor | None) -> Tensor | None:
    """(batch, text); of a mask of four axes what the last query sees: True, or 0 where it is added to scores."""
    if mask is None or mask.dim() != 4:
        return mask
    return (mask if mask.dtype == torch.bool else mask == 0)[:, 0, -1]


def _check_first_column(base: nn.Module, given: dict[str, Any]) -> None:
    """UserError for rows padded on the left, of which a pooler reads padding: it takes the first column as it is."""
    mask = _of_columns(base.__dict__.get(TEXT_MASK, given.get("attention_mask")))
    if mask is None or mask.dim() != 2 or torch.compiler.is_compiling():
        return
    if not bool(mask[:, 0].all()):
        raise UserError(
            f"The pooler of {type(base).__name__} reads the first column, which is padding in a row here. Pad on the "
            "right (tokenizer.padding_side = 'right'), or take Head(pooler=False), which reads the first real token."
        )


class _Made:
    """A head's logits on their way from the base model to the classifier, in whose place they come out.

    Nothing holds them on where no classifier follows, for the base model was called by itself, or a call was cut short.
    """

    def __init__(self) -> None:
        self.is_on = False  # whether a call of the whole model is on; its `forward` may be called past that, too
        self.logits: Tensor | weakref.ref[Tensor] | None = None

    def begin(self, *_: object) -> None:
        self.is_on, self.logits = True, None

    def put(self, logits: Tensor) -> None:
        # torch compiles no weak reference; a call of the base model by itself is over before its output is gone
        self.logits = logits if self.is_on or torch.compiler.is_compiling() else weakref.ref(logits)

    def instead(self, _module: nn.Module, _args: object, output: Tensor) -> Tensor:
        """A decoder's class asks for all tokens and takes the last of the text itself; a BERT's has taken one."""
        logits, self.logits = self.logits, None
        found = logits() if isinstance(logits, weakref.ref) else logits
        assert found is not None
        return found[:, None].expand(-1, output.shape[1], -1) if found.dim() < output.dim() else found

    def end(self, *_: object) -> None:
        self.is_on, self.logits = False, None
