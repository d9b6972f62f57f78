"""Folders of the `adapters` library (AdapterHub): prefixes, bottleneck adapters, LoRA, unions of them; to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tunescope.errors import UserError
from tunescope.exchange.adapters import bottleneck, gain, lora, prefix
from tunescope.exchange.adapters.config import CONFIG, KEEP, TENSORS, architecture, opened
from tunescope.exchange.adapters.written_out import written_out
from tunescope.exchange.outgoing import Incoming
from tunescope.methods.artifact import Artifact
from tunescope.models.anatomy import kind as kind_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ABOUT = "adapters (AdapterHub): prefixes, bottleneck and parallel adapters, LoRA and its kin, (IA)3, MAM; to read"
SERVES = "nothing is written in this form"
MARKS = {"prefix_tuning": ".prefix_tunings.", "bottleneck": ".adapters.", "lora": ".loras."}


def read(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Incoming:
    """The artifacts of a folder that save_adapter wrote, in the order prefix, adapters, LoRA, and notes.

    Raises:
        UserError: what that library can and this cannot, by name; a pickle; a damaged, altered or foreign file.
    """
    name, configs, stored, notes = opened(folder, model)
    tensors, told = written_out(configs, stored, name)
    notes += told
    split = _split(configs, tensors, name)
    made: list[Artifact] = []
    for kind, (theirs, parts) in split.items():
        if kind == "bottleneck":
            made += bottleneck.read(theirs, parts, name, model)
        else:
            if len(theirs) > 1:
                raise UserError(f"{CONFIG} has {len(theirs)} of {kind!r}, where one is expected. {KEEP}.")
            made += _reader(kind, theirs[0])(theirs[0], parts, name, model)
    if "prefix_tuning" in split and kind_of(model) != "encoder":
        notes.append(
            "in that library a decoder's prefix takes part as meant with attn_implementation='eager' alone; so it "
            "does here, whatever the attention"
        )
    return Incoming(made, notes)


def _reader(kind: str, config: Mapping[str, Any]) -> Callable[..., list[Artifact]]:
    if kind == "prefix_tuning":
        return prefix.read
    return lora.read_vectors if gain.is_ia3(config) else lora.read


def _split(
    configs: list[dict[str, Any]], tensors: Mapping[str, Tensor], name: str
) -> dict[str, tuple[list[dict[str, Any]], dict[str, Tensor]]]:
    """Kind -> its configurations and its tensors; each tensor belongs to one of them."""
    found: dict[str, tuple[list[dict[str, Any]], dict[str, Tensor]]] = {}
    for kind in MARKS:
        theirs = [config for config in configs if architecture(config) == kind]
        if theirs:
            found[kind] = (theirs, {})
    for key, value in tensors.items():
        kinds = [kind for kind in found if f"{MARKS[kind]}{name}." in f".{key}"]
        if len(kinds) != 1:
            raise UserError(f"{TENSORS}: {key!r} does not belong to what {CONFIG} describes: the file was altered.")
        found[kinds[0]][1][key] = value
    return found
