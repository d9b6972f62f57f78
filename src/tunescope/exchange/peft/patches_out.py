"""Changed parameters written beside LoRA for peft: biases, rows of embeddings, and whole modules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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

    Raises UserError for a map that LoRA changes too, for a tied parameter, and for what is no "weight" and no "bias".
    """
    names, places = paths(model, headed=headed), named_parameters(model)
    _check_called(artifacts)
    tuned = {name.removesuffix(".lora_A.weight") for name in own if name.endswith(".lora_A.weight")}
    values = _values(artifacts, model)
    fields: dict[str, Any] = {}
    wholes = [(artifact, name) for artifact in artifacts if not _rows(artifact) for name in artifact.tensors]
    whole_names = {name for _, name in wholes}
    weights = {name.rpartition(".")[0] for _, name in wholes if name.endswith(".weight")}
    alone = {name for _, name in wholes if name.endswith(".bias") and name.rpartition(".")[0] not in weights}
    tensors = _biases({name: values[name] for name in alone}, model, names, tuned)
    if alone:
        fields["bias"] = "all"
        wholes = [(artifact, name) for artifact, name in wholes if name not in alone]
    for name, rows in _rows_of(artifacts, whole_names).items():
        path = _tokens_path(rows, name, [one for one, _ in places[name]], names, tuned, model)
        tensors[f"base_model.model.{path}.token_adapter.trainable_tokens_delta"] = values[name][list(rows)]
        fields.setdefault("trainable_token_indices", {})[path] = list(rows)
    for artifact, name in wholes:
        module = places[name][0][0]
        path = names[module]
        _check_apart(artifact, name, len(places[name]), f"base_model.model.{path}" in tuned)
        for attribute, parameter in module.named_parameters(recurse=False):
            other = name.rpartition(".")[0] + f".{attribute}"
            tensors[f"base_model.model.{path}.{attribute}"] = values.get(other, parameter.detach())
        fields.setdefault("modules_to_save", []).append(path)
    if "modules_to_save" in fields:
        fields["modules_to_save"] = sorted(set(fields["modules_to_save"]))
    others = [
        *fields.get("modules_to_save", ()),
        *(f"rows of {name}" for name in fields.get("trainable_token_indices", ())),
    ]
    return fields, tensors, [f"{', '.join(others)}: written as they are, which only peft takes"] if others else []


def _biases(
    changed_ones: Mapping[str, Tensor], model: PreTrainedModel, names: Mapping[nn.Module, str], tuned: Collection[str]
) -> dict[str, Tensor]:
    """As peft's bias="all" has them: with the changed ones, if any, those of all maps that have LoRA."""
    found: dict[str, Tensor] = {}
    for name, places in named_parameters(model).items() if changed_ones else ():
        for module, attribute in places:
            path = f"base_model.model.{names[module]}" if module in names else ""
            if attribute == "bias" and (name in changed_ones or path in tuned):
                value = changed_ones.get(name, module.get_parameter(attribute).detach())
                found[f"{path}.base_layer.bias" if path in tuned else f"{path}.bias"] = value.clone()
    return found


def _check_called(artifacts: Sequence[Artifact]) -> None:
    """UserError for q_bias and the like, which peft's bias="all" is not: it saves what is called "bias"."""
    for artifact in artifacts:
        for name in artifact.tensors:
            if name.rpartition(".")[2] not in ("weight", "bias"):
                raise UserError(
                    f"{artifact.spec} changes {name!r}, and peft's files hold whole parameters that are called weight "
                    f"or bias: {MERGED}."
                )


def _values(artifacts: Sequence[Artifact], model: PreTrainedModel) -> dict[str, Tensor]:
    """Every changed parameter, as it is with all changes."""
    changes = [(one.spec, one.tensors) for one in artifacts if isinstance(one.spec, PatchDelta)]
    places = named_parameters(model)
    base = {name: places[name][0][0].get_parameter(places[name][0][1]).detach() for _, p in changes for name in p}
    return changed(base, changes)


def _rows(artifact: Artifact) -> tuple[int, ...]:
    return artifact.spec.rows if isinstance(artifact.spec, PatchDelta) else ()


def _rows_of(artifacts: Sequence[Artifact], wholes: Collection[str]) -> dict[str, dict[int, Artifact]]:
    """Parameter -> each of its rows that any artifact changes, with one that does; not of those written whole."""
    found: dict[str, dict[int, Artifact]] = {}
    for artifact in artifacts:
        for name in artifact.tensors if _rows(artifact) else ():
            if name not in wholes:
                found.setdefault(name, {}).update(dict.fromkeys(_rows(artifact), artifact))
    return found


def _tokens_path(
    rows: Mapping[int, Artifact],
    name: str,
    places: Sequence[nn.Module],
    names: Mapping[nn.Module, str],
    tuned: Collection[str],
    model: PreTrainedModel,
) -> str:
    """Of the places the one to name: the input's embedding if it is there, for peft ties the others to that alone.

    Raises UserError where peft's trainable tokens are not rows of these maps.
    """
    spec = next(iter(rows.values())).spec
    if any(isinstance(one, nn.Linear) and one.bias is not None for one in places):
        raise UserError(f"{spec} changes rows that a head with a bias reads, and peft leaves that bias out: {MERGED}.")
    table = model.get_input_embeddings()
    path = names[table if table in places else places[0]]
    has_lora = f"base_model.model.{path}" in tuned
    if has_lora or not all(type(one) in (nn.Embedding, nn.Linear) or one is table for one in places):
        what = "whose map has LoRA" if has_lora else f"of {type(places[0]).__name__}"
        raise UserError(f"{spec} changes rows of {name!r}, {what}, which peft has no trainable tokens for: {MERGED}.")
    return path


def _check_apart(artifact: Artifact, name: str, n_places: int, has_lora: bool) -> None:
    if n_places > 1:
        raise UserError(f"{artifact.spec} changes {name!r}, which is tied, and peft's whole modules are not: {MERGED}.")
    if has_lora:
        raise UserError(
            f"{artifact.spec} changes {name!r}, whose map has LoRA, and peft has one or the other: {MERGED}."
        )
