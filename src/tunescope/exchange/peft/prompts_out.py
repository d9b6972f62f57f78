"""Prefixes and soft prompts written as peft stores them; the layout is that of `prompts`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import reached
from tunescope.errors import UserError
from tunescope.exchange.peft.prefix_trial import check_prefix
from tunescope.exchange.peft.prompts import EMBEDDINGS, refuse_alibi, refuse_scaled, window_note
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.prefix import Prefix
from tunescope.models.anatomy import anatomy
from tunescope.models.family import find_family
from tunescope.models.positions import is_rotary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


LEFT = (
    "peft puts the prompt in front of a row's padding: in a batch padded on the left, the padded rows get other "
    "outputs and other text in peft, also from generate, unless the model takes positions from the mask (OPT does). "
    "Give peft rows of one length, or one row at a time"
)


def write_prefix(artifact: Artifact, model: PreTrainedModel) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """Fields of the configuration, the tensors, and notes, for a folded prefix.

    A prefix whose text keeps its positions is written with its keys turned by n positions where positions are rotary:
    there only the distance of query and key counts, so that shifting both says the same.

    Raises:
        UserError: an encoder-decoder; a model with ALiBi, or that takes no past keys; layers of different shapes; the
            text keeps its positions and those are learned.
    """
    spec, places = artifact.spec, reached(model)
    assert isinstance(spec, Prefix)
    refuse_alibi(model)
    if anatomy(model).kind == "encoder-decoder":
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
    kept = {name: turn(one) if name.endswith(".key") else one for name, one in artifact.tensors.items()}
    check_prefix(Artifact(replace(spec, positions="after"), kept), model)
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


def write_prompt(
    artifacts: list[Artifact], model: PreTrainedModel
) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """Fields of the configuration, the tensors, and notes, for soft prompts, joined in their order."""
    refuse_scaled(model)
    rows = torch.cat([artifact.tensors["embeddings"] for artifact in artifacts])
    notes = [f"{len(artifacts)} soft prompts became one of {len(rows)} rows"] if len(artifacts) > 1 else []
    notes.append(LEFT)
    both = anatomy(model).kind == "encoder-decoder"
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


def _turned(spec: Prefix, model: PreTrainedModel) -> tuple[Callable[[Tensor], Tensor], list[str]]:
    """What is done to a key for peft, which begins the text's positions behind the prefix."""
    if spec.positions == "after":
        return (lambda key: key), []
    if not is_rotary(model) or find_family(model.config.model_type) is None:
        raise UserError(
            f"peft begins the text's positions behind a prefix, and {spec} leaves them as they are: the same map only "
            f"for rotary positions that no text length rescales, in a mapped family, and {model.config.model_type!r} "
            "has others here. For peft tune with positions='after', or keep tunescope's own folder."
        )
    device, rotary = anatomy(model).device, model.base_model.rotary_emb

    def turn(key: Tensor) -> Tensor:
        at = torch.full((1, 1), spec.length)
        made = rotary(key[None].to(device), at.to(device))
        cos, sin = (part[0].to(key.device) / rotary.attention_scaling for part in made)  # (1, rotated part)
        part, rest = key[..., : cos.shape[-1]], key[..., cos.shape[-1] :]
        half = part.shape[-1] // 2
        across = torch.cat([-part[..., half:], part[..., :half]], -1)
        return torch.cat([part * cos + across * sin, rest], -1)

    note = (
        f"peft begins the text's positions at {spec.length}: the keys were turned as far, so every score is as before"
    )
    return turn, [note]
