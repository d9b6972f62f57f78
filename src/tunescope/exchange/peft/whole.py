"""Whole parameters and trained tokens beside LoRA or (IA)3, as peft's files have them, taken into `Patches`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.exchange.peft.config import MERGE, TENSORS
from tunescope.exchange.peft.modules import find_anywhere
from tunescope.exchange.peft.patches import ALL, Patches

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WHOLE = re.compile(r"base_model\.model\.((?:(?!\.lora_).)+?)(?:\.base_layer)?\.(weight|bias)")
TOKENS = re.compile(r"base_model\.model\.(.+?)(?:\.token_adapter)?\.trainable_tokens_delta")
UNSAID = (
    "is a whole weight beside LoRA that its configuration does not say was trained (modules_to_save, bias), and not as "
    "in the base, where it came to lie under save_embedding_layers."
)


def split(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], patches: Patches
) -> tuple[dict[str, Tensor], list[str]]:
    """Takes whole parameters and trained tokens into the patches; the tensors that are left, and notes.

    Raises:
        UserError: what the configuration says was trained is not there; what is there, it does not say.
    """
    rest: dict[str, Tensor] = {}
    wholes: dict[str, list[tuple[str, str, Tensor]]] = {}
    trained: dict[str, list[tuple[str, tuple[int, ...], Tensor]]] = {}
    for key, value in tensors.items():
        if tokens := TOKENS.fullmatch(key):
            place = (tokens[1], _indices(config, tokens[1]), value)
            trained.setdefault(patches.name(tokens[1], "weight"), []).append(place)
        elif whole := WHOLE.fullmatch(key):
            wholes.setdefault(patches.name(whole[1], whole[2]), []).append((whole[1], whole[2], value))
        else:
            rest[key] = value
    for said in trained.values():
        patches.replace_rows(said)
    told = []
    for places in wholes.values():
        path, attribute, value = places[0]
        if any(_is_trained(config, *place[:2]) for place in places):
            patches.replace(path, attribute, [place[2] for place in places])
            continue
        base = patches.base(path, attribute, places=ALL)
        if not torch.equal(value.to(base), base):
            raise UserError(f"{TENSORS}: '{path}.{attribute}' {UNSAID} {MERGE}")
        told.append(f"{path} is saved as it is in the base: it is left out")
    _check_biases(config, tensors, patches.model)
    return rest, told


def _check_biases(config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel) -> None:
    """UserError for a map whose LoRA is there, and whose bias, which was trained with it, is not."""
    if config.get("bias") not in ("all", "lora_only"):
        return
    saved = {whole[1] for key in tensors if (whole := WHOLE.fullmatch(key)) and whole[2] == "bias"}
    for key in tensors:
        path = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        if not key.endswith(".lora_A.weight") or path in saved:
            continue
        if getattr(find_anywhere(model, path), "bias", None) is not None:
            raise UserError(
                f"{TENSORS} has no bias of {path!r}, which its configuration says was trained "
                f"(bias={config['bias']!r}): the file was altered or cut."
            )


def _is_trained(config: Mapping[str, Any], path: str, attribute: str) -> bool:
    saved = any(re.search(rf"{re.escape(str(one))}(\.|$)", path) for one in config.get("modules_to_save") or [])
    return saved or (attribute == "bias" and config.get("bias") in ("all", "lora_only"))


def _indices(config: Mapping[str, Any], path: str) -> tuple[int, ...]:
    """The tokens that were trained in an embedding. Raises UserError where the configuration does not say them."""
    given = config.get("token_indices") or config.get("trainable_token_indices")
    if isinstance(given, dict):
        given = next((rows for name, rows in given.items() if path == name or path.endswith(f".{name}")), None)
    if not isinstance(given, list) or not all(type(row) is int for row in given) or len(set(given)) < len(given):
        raise UserError(f"{TENSORS} has trained tokens of {path!r}, and its configuration does not say which.")
    return tuple(given)


def check_there(config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel) -> None:
    """UserError for what was trained by the configuration and of which the file has nothing.

    A name that no module of the model has was not trained: peft passes over it.
    """
    said = [str(name) for name in config.get("modules_to_save") or [] if name not in ("classifier", "score")]
    names = [name for name in said if any(path.endswith(name) for path, _ in model.named_modules())]
    lacks = [name for name in names if not any(re.search(rf"{re.escape(name)}\.", key) for key in tensors)]
    if (config.get("trainable_token_indices") or config.get("token_indices")) and not any(
        TOKENS.fullmatch(key) for key in tensors
    ):
        lacks.append("trained tokens")
    if lacks:
        raise UserError(
            f"{TENSORS} lacks {', '.join(lacks)}, which its configuration says was trained: it was altered."
        )
