"""Prefixes and soft prompts as peft stores them, read: one tensor, ``prompt_embeddings``, whatever network trained it.

prefix, cartridge: (n, 2 L heads d), entry 2 i of a row the key and 2 i + 1 the value of layer i; the text begins at n.
prompt tuning and p-tuning: (n, width), in front of the text; in front of an encoder-decoder's source, n of 2 n rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import reached
from tunescope.attachment.embed_scale import embed_scale
from tunescope.errors import UserError
from tunescope.exchange.peft.config import CONFIG, TENSORS, number
from tunescope.exchange.peft.prefix_trial import check_prefix, window
from tunescope.methods.artifact import Artifact, LayerShape
from tunescope.methods.contexts.prefix import Prefix
from tunescope.methods.contexts.soft import Soft
from tunescope.models.anatomy import anatomy
from tunescope.models.positions import has_alibi

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EMBEDDINGS = "prompt_embeddings"


def read_prefix(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel
) -> tuple[list[Artifact], list[str]]:
    """A `Prefix(positions="after")` with peft's keys and values, and what its reader should know.

    Raises:
        UserError: an encoder-decoder; a model with ALiBi; a shape that fits neither the configuration nor the model.
    """
    refuse_alibi(model)
    if anatomy(model).kind == "encoder-decoder":
        raise UserError(
            "A peft prefix of an encoder-decoder: peft gives the decoder's layers i and i + L/2 the same keys, so half "
            "of what is stored was never trained; the encoder and cross attention have none, and its keys take part in "
            "the decoder's positions. A prefix here stands in all three kinds of attention, at no position, and "
            "would give other outputs: keep it in peft, or tune one here (prefix)."
        )
    n, n_layers = number(config, "num_virtual_tokens"), number(config, "num_layers")
    n_heads, width = number(config, "num_attention_heads"), number(config, "token_dim")
    if width % n_heads:
        raise UserError(
            f"{CONFIG}: token_dim is {width} and is no multiple of the {n_heads} heads: the file was altered."
        )
    flat = _only(tensors, (n, 2 * n_layers * width))
    found = reached(model)
    shape = LayerShape(n_heads, width // n_heads, width // n_heads)
    if len(found) != n_layers or any(place.shape != shape for place in found):
        raise UserError(
            f"{CONFIG} is for {n_layers} layers of {n_heads} key heads of {width // n_heads}; this model has "
            f"{len(found)} of {found[0].shape.kv_heads} of {found[0].shape.d_key}: it was made for another model."
        )
    entries = flat.view(n, 2 * n_layers, n_heads, -1).permute(1, 2, 0, 3)
    params = {}
    for i, place in enumerate(found):
        params[f"{place.name}.key"] = entries[2 * i]
        params[f"{place.name}.value"] = entries[2 * i + 1]
    notes = [f"the text's positions begin at {n}, as in peft: positions='after'", *window_note(model, n)]
    if config.get("num_frozen_tokens"):
        frozen = number(config, "num_frozen_tokens")
        notes.append(f"peft held its first {frozen} rows fixed in training: tuned further here, all {n} are tuned")
    made = Artifact(Prefix(length=n, positions="after"), _as_trained(params, model))
    check_prefix(made, model)
    return [made], notes


def read_prompt(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel
) -> tuple[list[Artifact], list[str]]:
    """A `Soft` with peft's rows, and what its reader should know.

    Raises:
        UserError: a shape that fits neither the configuration nor the model.
    """
    refuse_scaled(model)
    n, width = number(config, "num_virtual_tokens"), int(anatomy(model).table.weight.shape[1])
    doubled = anatomy(model).kind == "encoder-decoder" and len(tensors.get(EMBEDDINGS, ())) == 2 * n
    rows = _only(tensors, (2 * n if doubled else n, width))
    notes = []
    if doubled:
        notes.append(
            f"peft stores {2 * n} rows for an encoder-decoder and uses {n}: the others, never trained, are left out"
        )
    return [Artifact(Soft(length=n), _as_trained({"embeddings": rows[:n]}, model))], notes


def refuse_alibi(model: PreTrainedModel) -> None:
    """UserError where scores have a bias by distance, which peft's prefix has too and tunescope's has not."""
    if has_alibi(model):
        raise UserError(
            f"Family {model.config.model_type!r} biases scores by distance (ALiBi): peft's prefix stands at distances "
            "and tunescope's at none, so neither can be made of the other. Tune a soft prompt, or LoRA."
        )


def refuse_scaled(model: PreTrainedModel) -> None:
    """UserError where the model multiplies what it looks up, and peft gives it the text's embeddings without that."""
    if (factor := embed_scale(model)) != 1:
        raise UserError(
            f"Family {model.config.model_type!r} multiplies the embeddings of ids by {factor:g}, and behind a soft "
            "prompt of peft's the text comes without that: neither can be made of the other. Tune a prefix, or LoRA."
        )


def window_note(model: PreTrainedModel, n: int) -> list[str]:
    """What to know of a model whose layers see a window: in peft its prefix leaves it, here it does not."""
    if (seen := window(model)) is None:
        return []
    return [
        f"this model's layers see {seen} positions: in peft a prefix passes out of sight there, here it never does; "
        f"the two are the same for texts of up to {max(seen - n, 0)} tokens"
    ]


def _only(tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    if tensors.keys() != {EMBEDDINGS}:
        raise UserError(
            f"{TENSORS} holds {', '.join(sorted(tensors)[:5]) or 'nothing'}; {EMBEDDINGS} alone belongs there."
        )
    found = tensors[EMBEDDINGS]
    if found.shape != shape:
        raise UserError(
            f"{TENSORS}: {EMBEDDINGS} is {tuple(found.shape)} and should be {shape}: the file or {CONFIG} was altered, "
            "or it was made for another model."
        )
    return found


def _as_trained(tensors: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, Tensor]:
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    return {name: value.to(dtype, copy=True).contiguous() for name, value in tensors.items()}
