"""What a transformers model is made of: its kind, where inputs enter, what its modules take."""

from __future__ import annotations

import inspect
import weakref
from typing import Any

from torch import nn

from tunescope.errors import UserError
from tunescope.models.family import find_family


def entries(model: Any) -> dict[str, Any]:
    """Where text enters: stack -> the module that embeds it."""
    base = model.base_model
    if model.config.is_encoder_decoder:
        return {"encoder": base.get_encoder(), "decoder": base.get_decoder()}

    return {kind(model): base.get_decoder() if kind(model) == "decoder" else base}


def argument_names(module: nn.Module) -> list[str]:
    """The names under which a module's forward takes its positional arguments."""
    return [name for name in inspect.signature(module.forward).parameters if name != "self"]


CAUSAL_HEADS = ("ForCausalLM", "LMHeadModel")


def kind(model: Any) -> str:
    """ "decoder", "encoder" or "encoder-decoder", for a model or a config, mapped family or not.

    The half of an encoder-decoder that stands alone is what it is.
    """
    config = getattr(model, "config", model)
    if config.is_encoder_decoder:
        return "encoder-decoder"
    family = find_family(config.model_type)
    if family is not None and family.kind == "encoder-decoder":
        return "decoder" if config.is_decoder else "encoder"
    if family is not None:
        return family.kind
    named = [type(model).__name__, *(config.architectures or [])]
    if any(name.endswith(CAUSAL_HEADS) for name in named):
        return "decoder"
    return "decoder" if isinstance(model, nn.Module) and _looks_back(model) else "encoder"


_CAUSAL: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def _looks_back(model: nn.Module) -> bool:
    """Whether its attention is causal: a decoder without its head."""
    if model not in _CAUSAL:
        _CAUSAL[model] = any(getattr(module, "is_causal", False) is True for module in model.modules())
    return _CAUSAL[model]


def refuse_half(model: Any) -> None:
    """UserError for the decoder of an encoder-decoder that stands alone, whose cross attention rests."""
    family = find_family(model.config.model_type)
    if family is not None and family.kind == "encoder-decoder" and kind(model) == "decoder":
        raise UserError(
            f"A {type(model).__name__} is the decoder of an encoder-decoder alone, which is not mapped: load the whole "
            "model, with AutoModelForSeq2SeqLM. Bias and full can be attached to it as it is."
        )
