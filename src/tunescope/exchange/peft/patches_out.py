"""Changed parameters written beside LoRA for peft: biases, rows of embeddings, and whole modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tunescope.attachment.weights import changed, named_parameters
from tunescope.errors import UserError
from tunescope.exchange.peft.modules import paths
from tunescope.methods.artifact import Artifact, PatchDelta

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MERGED = "merge all of it into the weights (tunescope.merge) and save the model"


def write(
    artifacts: Sequence[Artifact], model: PreTrainedModel, own: dict[str, Tensor], *, headed: bool
) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """Fields of the configuration, tensors and notes for changes that act beside LoRA.

    own: LoRA's tensors by peft's names. headed: they are for the model with a classification head around it.

    Raises UserError for a map that LoRA changes too, and for a tied parameter.
    """
    names, places = paths(model, headed=headed), named_parameters(model)
    tuned = {name.removesuffix(".lora_A.weight") for name in own if name.endswith(".lora_A.weight")}
    values = _values(artifacts, model)
    tensors: dict[str, Tensor] = {}
    fields: dict[str, Any] = {}
    if all(name.endswith(".bias") for name in values) and not any(_rows(one) for one in artifacts):
        for name, value in values.items():
            for module, _ in places[name]:
                path = f"base_model.model.{names[module]}"
                tensors[f"{path}.base_layer.bias" if path in tuned else f"{path}.bias"] = value.clone()
        return {"bias": "all"}, tensors, []
    for artifact in artifacts:
        for name in artifact.tensors:
            module = places[name][0][0]
            path, rows = names[module], _rows(artifact)
            if rows:
                _check_heads(artifact, [one for one, _ in places[name]])
                tensors[f"base_model.model.{path}.token_adapter.trainable_tokens_delta"] = values[name][list(rows)]
                fields.setdefault("trainable_token_indices", {})[path] = list(rows)
                continue
            _check_apart(artifact, name, len(places[name]), f"base_model.model.{path}" in tuned)
            for attribute, parameter in module.named_parameters(recurse=False):
                whole = name.rpartition(".")[0] + f".{attribute}"
                tensors[f"base_model.model.{path}.{attribute}"] = values.get(whole, parameter.detach())
            fields.setdefault("modules_to_save", []).append(path)
    if "modules_to_save" in fields:
        fields["modules_to_save"] = sorted(set(fields["modules_to_save"]))
    return fields, tensors, [f"{len(tensors)} changed parameters are written whole: only peft takes them"]


def _values(artifacts: Sequence[Artifact], model: PreTrainedModel) -> dict[str, Tensor]:
    """Every changed parameter, as it is with all changes."""
    changes = [(one.spec, one.tensors) for one in artifacts if isinstance(one.spec, PatchDelta)]
    places = named_parameters(model)
    base = {name: places[name][0][0].get_parameter(places[name][0][1]).detach() for _, p in changes for name in p}
    return changed(base, changes)


def _rows(artifact: Artifact) -> tuple[int, ...]:
    return artifact.spec.rows if isinstance(artifact.spec, PatchDelta) else ()


def _check_heads(artifact: Artifact, places: Sequence[nn.Module]) -> None:
    if any(isinstance(one, nn.Linear) and one.bias is not None for one in places):
        raise UserError(
            f"{artifact.spec} changes rows that a head with a bias reads, and peft leaves that bias out: {MERGED}."
        )


def _check_apart(artifact: Artifact, name: str, n_places: int, has_lora: bool) -> None:
    if n_places > 1:
        raise UserError(f"{artifact.spec} changes {name!r}, which is tied, and peft's whole modules are not: {MERGED}.")
    if has_lora:
        raise UserError(
            f"{artifact.spec} changes {name!r}, whose map has LoRA, and peft has one or the other: {MERGED}."
        )
