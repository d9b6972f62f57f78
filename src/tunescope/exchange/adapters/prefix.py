"""Prefixes as the `adapters` library stores them (Li & Liang 2021), read into `Prefix(positions="same")`.

One set for each kind of attention, in every layer of it: ``control_trans`` (n 2 L heads d), or a network whose output
that is, folded here. Row j is (2 L, key heads, d); entry 2 i is the key of layer i and 2 i + 1 its value. The file
repeats every set once for each layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.activations import get_activation

from tunescope.attachment.attention.reach import Reached, reached
from tunescope.errors import UserError
from tunescope.exchange.adapters.config import CONFIG, KEEP, TENSORS, number
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.contexts.prefix import Prefix
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PART = r"(.+\.)?prefix_tunings\.{}\.([^.]+)\.(.+)"
NETWORK = ("wte.weight", "control_trans.0.weight", "control_trans.0.bias", "control_trans.2.weight",
           "control_trans.2.bias")  # fmt: skip


def read(config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, model: PreTrainedModel) -> list[Artifact]:
    """A `Prefix` with the library's keys and values.

    Raises:
        UserError: T5, where the library's prefix moves the text's relative positions; a prefix that leaves out layers
            or a kind of attention; shapes that fit neither the configuration nor the model; copies that differ.
    """
    _check(config, model)
    length = number(config, "prefix_length", whole=True)
    sets = _sets(tensors, name)
    dtype = torch.promote_types(anatomy(model).table.weight.dtype, torch.float32)
    params: Params = {}
    for place, layers in _places(model).items():
        names = [one for one in sets if _place(one, model) == place]
        if len(names) != 1:
            raise UserError(f"{TENSORS} has {len(names)} prefixes for {place}, where one is expected. {KEEP}.")
        flat = _flat(config, sets.pop(names[0]))
        shape = layers[0].shape
        expected = (length, 2 * len(layers), shape.kv_heads, shape.d_key)
        if flat.numel() != torch.Size(expected).numel():
            raise UserError(
                f"{TENSORS}: the prefix {names[0]!r} has {flat.numel()} numbers, and this model's {len(layers)} layers "
                f"take {torch.Size(expected).numel()}: it was made for a model of another shape, or altered."
            )
        entries = flat.view(expected).permute(1, 2, 0, 3)
        for i, layer in enumerate(layers):
            for offset, which in enumerate(("key", "value")):
                params[f"{layer.name}.{which}"] = entries[2 * i + offset].to(dtype, copy=True).contiguous()
    if sets:
        raise UserError(f"{TENSORS}: the prefix {next(iter(sets))!r} has no place in this model. {KEEP}.")
    return [Artifact(Prefix(length=length), params)]


def _is_shifted(model: PreTrainedModel) -> bool:
    """T5 and mT5: the family has relative positions."""
    return hasattr(model.config, "relative_attention_num_buckets")


def _check(config: Mapping[str, Any], model: PreTrainedModel) -> None:
    if _is_shifted(model):
        raise UserError(
            "The adapters library counts a T5 prefix among the relative positions: every token of the text seems so "
            f"much further on, which no prefix here says. {KEEP}, or tune one here (prefix)."
        )
    absent = [f"{field}=False" for field in ("encoder_prefix", "cross_prefix") if config.get(field) is False]
    if absent and anatomy(model).kind == "encoder-decoder":
        raise UserError(f"{CONFIG}: {absent[0]}, and a prefix here stands in all kinds of attention. {KEEP}.")
    if config.get("leave_out"):
        raise UserError(
            f"{CONFIG}: leave_out={config['leave_out']!r}, and a prefix here stands in every layer. {KEEP}."
        )


def _sets(tensors: Mapping[str, Tensor], name: str) -> dict[str, dict[str, Tensor]]:
    """Location -> its tensors, of which all copies are the same."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        match = re.fullmatch(PART.format(re.escape(name)), key)
        if match is None:
            raise UserError(
                f"{TENSORS}: {key!r} does not belong to a prefix: the file was altered, or is of a newer version."
            )
        kept = found.setdefault(match[2], {}).setdefault(match[3], value)
        if not torch.equal(kept, value):
            raise UserError(f"{TENSORS}: {key!r} is not what its copies are: the file was altered.")
    return found


def _places(model: PreTrainedModel) -> dict[str, list[Reached]]:
    """ "decoder.self" -> the model's attention modules there, by depth."""
    found: dict[str, list[Reached]] = {}
    for layer in reached(model):
        stack, _, which = layer.name.split(".")
        found.setdefault(f"{stack}.{which}", []).append(layer)
    return found


def _place(location: str, model: PreTrainedModel) -> str:
    """The place that the library's name for it means; "" for none."""
    alone = "encoder" if anatomy(model).kind == "encoder" else "decoder"
    names = {"self": f"{alone}.self", "self_prefix": f"{alone}.self"}
    return {**names, "encoder_prefix": "encoder.self", "cross_prefix": "decoder.cross"}.get(location, "")


def _flat(config: Mapping[str, Any], given: Mapping[str, Tensor]) -> Tensor:
    """(n, 2 L heads d), or all of it in one axis."""
    if given.keys() == {"control_trans"}:
        return given["control_trans"].flatten()
    if given.keys() != set(NETWORK):
        raise UserError(f"{TENSORS}: a prefix has {', '.join(sorted(given))} and should have {', '.join(NETWORK)}.")
    embedding, down, down_bias, up, up_bias = (given[part].double() for part in NETWORK)
    active = _active(config)
    try:
        return F.linear(active(F.linear(embedding, down, down_bias)), up, up_bias).flatten()
    except (RuntimeError, IndexError) as problem:
        raise UserError(
            f"{TENSORS}: the parts of the prefix's network do not fit together: the file was altered."
        ) from problem


def _active(config: Mapping[str, Any]) -> Any:
    named = str(config.get("non_linearity")).lower()
    try:
        return F.leaky_relu if named == "leakyrelu" else get_activation(named)
    except KeyError:
        raise UserError(f"{CONFIG}: non_linearity is {named!r}, which transformers does not have.") from None
