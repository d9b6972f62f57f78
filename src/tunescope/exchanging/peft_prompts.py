"""Prefixes and soft prompts as peft stores them: one tensor, ``prompt_embeddings``, whatever network trained it.

prefix: (n, 2 L heads d), entry 2 i of a row the key and 2 i + 1 the value of layer i; the text's positions begin at n.
prompt tuning and p-tuning: (n, width), in front of the text; in front of an encoder-decoder's source, n of 2 n rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tunescope.artifact import Artifact, LayerShape
from tunescope.contexts.prefix import Prefix
from tunescope.contexts.soft import Soft
from tunescope.errors import UserError
from tunescope.exchanging.peft_config import CONFIG, TENSORS, number
from tunescope.reach import reached
from tunescope.sites import kind

EMBEDDINGS = "prompt_embeddings"


def read_prefix(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: Any
) -> tuple[list[Artifact], list[str]]:
    """A `Prefix(positions="after")` with peft's keys and values, and what its reader should know.

    Raises:
        UserError: an encoder-decoder; a shape that fits neither the configuration nor the model.
    """
    if kind(model) == "encoder-decoder":
        raise UserError(
            "A peft prefix of an encoder-decoder: peft gives the decoder's layers i and i + L/2 the same keys, so half "
            "of what is stored was never trained; the encoder and cross attention have none, and its keys take part in "
            "the decoder's positions. A prefix here stands in all three kinds of attention, at no position, and "
            "would give other outputs: keep it in peft, or tune one here (prefix)."
        )
    n, n_layers = number(dict(config), "num_virtual_tokens"), number(dict(config), "num_layers")
    n_heads, width = number(dict(config), "num_attention_heads"), number(dict(config), "token_dim")
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
    return [Artifact(Prefix(length=n, positions="after"), _as_trained(params, model))], notes


def read_prompt(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: Any
) -> tuple[list[Artifact], list[str]]:
    """A `Soft` with peft's rows, and what its reader should know.

    Raises:
        UserError: a shape that fits neither the configuration nor the model.
    """
    n, width = number(dict(config), "num_virtual_tokens"), int(model.get_input_embeddings().weight.shape[1])
    doubled = kind(model) == "encoder-decoder" and len(tensors.get(EMBEDDINGS, ())) == 2 * n
    rows = _only(tensors, (2 * n if doubled else n, width))
    notes = []
    if doubled:
        notes.append(
            f"peft stores {2 * n} rows for an encoder-decoder and uses {n}: the others, never trained, are left out"
        )
    return [Artifact(Soft(length=n), _as_trained({"embeddings": rows[:n]}, model))], notes


def write_prefix(artifact: Artifact, model: Any) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """Fields of the configuration, the tensors, and notes, for a folded prefix.

    A prefix whose text keeps its positions is written with its keys turned by n positions where positions are rotary:
    there only the distance of query and key counts, so that shifting both says the same.

    Raises:
        UserError: an encoder-decoder; layers of different shapes; the text keeps its positions and those are learned.
    """
    spec, places = artifact.spec, reached(model)
    assert isinstance(spec, Prefix)
    if kind(model) == "encoder-decoder":
        raise UserError(
            "peft's prefix of an encoder-decoder has one set of keys for two decoder layers and none for the encoder: "
            "this prefix cannot be said in it. Keep tunescope's own folder (tunescope.save)."
        )
    shapes = {place.shape for place in places}
    first = places[0].shape
    if len(shapes) > 1 or first.d_key != first.d_value:
        raise UserError(
            "peft's prefix has one shape for all layers, and this model's differ: keep tunescope's own folder."
        )
    turn, notes = _turned(spec, model)
    entries = []
    for place in places:
        entries += [turn(artifact.tensors[f"{place.name}.key"]), artifact.tensors[f"{place.name}.value"]]
    flat = torch.stack(entries).permute(2, 0, 1, 3).reshape(spec.length, -1)
    fields = {
        "peft_type": "PREFIX_TUNING",
        "num_virtual_tokens": spec.length,
        "num_layers": len(places),
        "num_attention_heads": first.kv_heads,
        "token_dim": first.kv_heads * first.d_key,
        "num_transformer_submodules": 1,
        "prefix_projection": False,
    }
    return fields, {EMBEDDINGS: flat}, [*notes, *window_note(model, spec.length)]


def write_prompt(artifacts: list[Artifact], model: Any) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """Fields of the configuration, the tensors, and notes, for soft prompts, joined in their order."""
    rows = torch.cat([artifact.tensors["embeddings"] for artifact in artifacts])
    notes = [f"{len(artifacts)} soft prompts became one of {len(rows)} rows"] if len(artifacts) > 1 else []
    both = kind(model) == "encoder-decoder"
    fields = {
        "peft_type": "PROMPT_TUNING",
        "num_virtual_tokens": len(rows),
        "token_dim": rows.shape[1],
        "num_layers": int(getattr(model.config, "num_hidden_layers", 1)),
        "num_attention_heads": 1,
        "num_transformer_submodules": 2 if both else 1,
        "prompt_tuning_init": "RANDOM",
    }
    if both:
        notes.append(
            f"peft keeps twice the rows for an encoder-decoder and uses the first {len(rows)}: the others are zero"
        )
        rows = torch.cat([rows, torch.zeros_like(rows)])
    return fields, {EMBEDDINGS: rows}, notes


def window_note(model: Any, n: int) -> list[str]:
    """What to know of a model whose layers see a window: in peft its prefix leaves it, here it does not."""
    window = getattr(model.config, "sliding_window", None)
    if not window or not getattr(model.config, "use_sliding_window", True):
        return []
    return [
        f"this model's layers see {window} positions: in peft a prefix passes out of sight there, here it never does; "
        f"the two are the same for texts of up to {max(window - n, 0)} tokens"
    ]


def _turned(spec: Prefix, model: Any) -> tuple[Any, list[str]]:
    """What is done to a key for peft, which begins the text's positions behind the prefix."""
    if spec.positions == "after":
        return (lambda key: key), []
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is None:
        raise UserError(
            f"peft begins the text's positions behind a prefix, and {spec} leaves them as they are, which is another "
            f"map in {model.config.model_type!r}, whose positions are learned. For peft tune with positions='after', "
            "or keep tunescope's own folder."
        )

    device = model.get_input_embeddings().weight.device

    def turn(key: Tensor) -> Tensor:
        at = torch.full((1, 1), spec.length)
        cos, sin = (part[0].to(key.device) for part in rotary(key[None].to(device), at.to(device)))  # (1, rotated part)
        part, rest = key[..., : cos.shape[-1]], key[..., cos.shape[-1] :]
        half = part.shape[-1] // 2
        across = torch.cat([-part[..., half:], part[..., :half]], -1)
        return torch.cat([part * cos + across * sin, rest], -1)

    note = (
        f"peft begins the text's positions at {spec.length}: the keys were turned as far, so every score is as before"
    )
    return turn, [note]


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


def _as_trained(tensors: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
    dtype = torch.promote_types(model.get_input_embeddings().weight.dtype, torch.float32)
    return {name: value.to(dtype, copy=True).contiguous() for name, value in tensors.items()}
