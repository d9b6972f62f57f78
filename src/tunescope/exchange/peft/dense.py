"""Changes of whole matrices that peft stores in less: (IA)3, LoRA on embeddings and on the head over the words.

(IA)3 (Liu et al. 2022, arXiv:2205.05638): l is multiplied with what leaves a map, or, of a feed-forward, enters it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.sites.choice import parts_of_maps
from tunescope.errors import UserError
from tunescope.exchange.peft.config import CONVERT, KNOWN_STARTS, MERGE, TENSORS
from tunescope.exchange.peft.lora_fields import check_shapes, check_target, is_feedforward, is_target, rank_of, scale_of
from tunescope.exchange.peft.modules import find, find_anywhere, paths
from tunescope.exchange.peft.patches import Patches, oriented
from tunescope.exchange.peft.starts import without_start
from tunescope.models.sites import is_map, weight_shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

A, B, BIAS, MAGNITUDE = "lora_A.weight", "lora_B.weight", "lora_B.bias", "lora_magnitude_vector"
FIRST, SECOND = "lora_embedding_A", "lora_embedding_B"
PART = re.compile(rf"base_model\.model\.(.+)\.({'|'.join(map(re.escape, (A, B, BIAS, MAGNITUDE, FIRST, SECOND)))})")
SCALED = re.compile(r"base_model\.model\.(.+)\.ia3_l")


def split(config: Mapping[str, Any], tensors: Mapping[str, Tensor], patches: Patches) -> dict[str, Tensor]:
    """Takes what is no LoRA at a site into the patches; the tensors that are left are plain LoRA.

    Raises:
        UserError: a part is missing, or of a shape that does not fit; its map is none, has no bias, or is tied.
    """
    groups: dict[str, dict[str, Tensor]] = {}
    rest: dict[str, Tensor] = {}
    for key, value in tensors.items():
        found = PART.fullmatch(key)
        if found is None:
            rest[key] = value
        else:
            groups.setdefault(found[1], {})[found[2]] = value
    sites, tied = parts_of_maps(patches.model), _tied_head(config, groups, patches)
    if tied is not None:
        del groups[tied]
    for path, parts in groups.items():
        bias = parts.pop(BIAS, None)
        if (bias is not None) != bool(config.get("lora_bias")) and A in parts:
            raise UserError(
                f"{TENSORS}: {path!r} has {'a' if bias is not None else 'no'} bias in LoRA's second map, and lora_bias "
                f"is {config.get('lora_bias')}: the file was altered."
            )
        if bias is not None:
            _add_bias(config, path, bias, parts, patches)
        if parts.keys() & {FIRST, SECOND}:
            _add_embedding(config, path, parts, patches, places=1 if tied is None else 2)
        elif find(patches.model, path) not in sites and _is_head(patches.model, path):
            _add_map(config, path, parts, patches)
        else:
            rest |= {f"base_model.model.{path}.{name}": value for name, value in parts.items()}
    return rest


def add_ia3(config: Mapping[str, Any], tensors: Mapping[str, Tensor], patches: Patches) -> list[str]:
    """Takes (IA)3's vectors into the patches, those of a feed-forward into columns of its weight, others into rows.

    Gives notes on modules that have none though target_modules names them.

    Raises:
        UserError: a tensor that is no such vector; one of another length than its map; none at all.
    """
    if not tensors:
        raise UserError(f"{TENSORS} holds no ia3_l: it is no (IA)3 checkpoint of peft.")
    absent = {module: name for module, name in paths(patches.model, headed=False).items() if is_target(config, name)}
    for key, value in tensors.items():
        found = SCALED.fullmatch(key)
        if found is None:
            raise UserError(f"{TENSORS}: {key!r} does not belong to (IA)3: the file was altered.")
        module = _map(patches.model, found[1])
        absent.pop(module, None)
        check_target(config, found[1])
        d_out, d_in = weight_shape(module)
        said = config.get("feedforward_modules") is not None  # else peft goes by the family, and the shape tells
        into = is_feedforward(config, found[1]) if said else value.shape == (1, d_in)
        if value.shape != ((1, d_in) if into else (d_out, 1)):
            raise UserError(
                f"{TENSORS}: {found[1]!r} has ia3_l {tuple(value.shape)} and should have {(d_out, 1)} or, of a "
                f"map that feedforward_modules names, {(1, d_in)}: the file was altered, or made for another model."
            )
        weight = patches.base(found[1], "weight")
        patches.add(found[1], "weight", oriented(module, oriented(module, weight) * (value.to(weight) - 1)))
        if not into and getattr(module, "bias", None) is not None:
            bias = patches.base(found[1], "bias")
            patches.add(found[1], "bias", bias * (value.to(bias).flatten() - 1))
    return [f"the file has no (IA)3 for {', '.join(absent.values())}, which target_modules names"] if absent else []


def _add_bias(
    config: Mapping[str, Any], path: str, bias: Tensor, parts: Mapping[str, Tensor], patches: Patches
) -> None:
    """A bias of LoRA's second map: scaled as the product, it is added to the map's own."""
    if config.get("use_dora"):
        raise UserError(
            f"{TENSORS}: {path!r} has a bias in LoRA's second map under DoRA, which has no place here. {MERGE}"
        )
    if A not in parts or parts[A].dim() != 2:
        raise UserError(f"{TENSORS}: {path!r} has no lora_A of a map beside the bias of lora_B: the file was altered.")
    if getattr(find_anywhere(patches.model, path), "bias", None) is None:
        raise UserError(
            f"{TENSORS}: {path!r} has a bias in LoRA's second map (lora_bias), and the map in this model has none that "
            "it could be added to, nor can peft merge it. Train it in peft without lora_bias."
        )
    patches.add(path, "bias", scale_of(config, path, len(parts[A])) * bias.to(patches.base(path, "bias")))


def _tied_head(config: Mapping[str, Any], groups: Mapping[str, Mapping[str, Tensor]], patches: Patches) -> str | None:
    """The head over the vocabulary whose LoRA is that of the embedding that it is tied to, which peft stores twice.

    With ensure_weight_tying it stores them transposed, and ties them anew on loading if they are called embed_tokens.
    """
    model = patches.model
    path_of = {find_anywhere(model, path): path for path in groups}
    table, head = path_of.get(model.get_input_embeddings()), path_of.get(model.get_output_embeddings())
    if not config.get("ensure_weight_tying") or not table or not head or table.split(".")[-1] != "embed_tokens":
        return None
    ours, theirs = groups[head], groups[table]
    if ours.keys() != {A, B} or theirs.keys() != {FIRST, SECOND}:
        return None
    is_same = _are_turned(ours[A], theirs[SECOND]) and _are_turned(ours[B], theirs[FIRST])
    scales = {scale_of(config, path, rank_of(config, path)) for path in (table, head)}
    is_tied = patches.name(table, "weight") == patches.name(head, "weight")
    return head if is_tied and is_same and len(scales) == 1 else None


def _are_turned(one: Tensor, other: Tensor) -> bool:
    """Whether both are matrices, and one is the other transposed."""
    return one.dim() == 2 and one.shape == other.shape[::-1] and torch.equal(one, other.to(one).T)


def _add_embedding(
    config: Mapping[str, Any], path: str, parts: Mapping[str, Tensor], patches: Patches, *, places: int
) -> None:
    check_target(config, path)
    weight = patches.base(path, "weight", places=places)
    if parts.keys() != {FIRST, SECOND}:
        raise UserError(
            f"{TENSORS}: {path!r} has {', '.join(sorted(parts))}, where an embedding has {FIRST} and {SECOND}; DoRA on "
            f"an embedding has no place here. {MERGE}"
        )
    if config.get("init_lora_weights") in KNOWN_STARTS:
        raise UserError(
            f"{TENSORS}: {path!r} is an embedding, and init_lora_weights={config['init_lora_weights']!r} takes a "
            f"product out of maps. {CONVERT}"
        )
    a, b = parts[FIRST].to(weight), parts[SECOND].to(weight)
    check_shapes(config, path, (weight.shape[1], weight.shape[0]), a, b)
    patches.add(path, "weight", scale_of(config, path, len(a)) * (b @ a).T)


def _add_map(config: Mapping[str, Any], path: str, parts: Mapping[str, Tensor], patches: Patches) -> None:
    """LoRA of a linear map that is no site. Raises UserError where a part is missing, a tied map, and for DoRA."""
    module = _map(patches.model, path)
    if MAGNITUDE in parts:
        raise UserError(
            f"{TENSORS}: {path!r} has DoRA on the head over the vocabulary, which has no place here. {MERGE}"
        )
    weight = patches.base(path, "weight")  # first: of two that are tied target_modules may have one
    check_target(config, path)
    if parts.keys() != {A, B}:
        raise UserError(f"{TENSORS}: {path!r} has {', '.join(parts)} alone: the file was altered or cut.")
    a, b = parts[A].to(weight), parts[B].to(weight)
    check_shapes(config, path, weight_shape(module), a, b)
    scale = scale_of(config, path, len(a))
    if config.get("init_lora_weights") in KNOWN_STARTS:
        a, b = without_start(config, module, scale, a, b)
    patches.add(path, "weight", oriented(module, scale * (b @ a)))


def _map(model: PreTrainedModel, path: str) -> nn.Module:
    """The linear map of that path. Raises UserError where there is none."""
    module = find_anywhere(model, path)
    if module is None or not is_map(module):
        what = "is no linear map of this model" if module is not None else "is nothing that this model has"
        raise UserError(f"{TENSORS}: {path!r} {what}. Was it made for another, load that; else: {MERGE}")
    return module


def _is_head(model: PreTrainedModel, path: str) -> bool:
    module = find_anywhere(model, path)
    return module is not None and module is model.get_output_embeddings()
