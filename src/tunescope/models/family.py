"""What a family's file says, and the finder of those files: where the linear maps of a layer are, which norms."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from tunescope.system import plugins

FOLDER = "models.families"


@dataclass(frozen=True)
class Slice:
    """Part `index` of `of` equal parts of a fused linear map's output, in blocks or head by head."""

    path: str
    index: int
    of: int
    per_head: bool = False


@dataclass(frozen=True)
class Attention:
    """Paths from the layer: `module` is what calls the attention function; `head_dim` its attribute of that meaning."""

    module: str
    q: str | Slice
    k: str | Slice
    v: str | Slice
    o: str
    head_dim: str = "head_dim"


@dataclass(frozen=True)
class Stack:
    """Paths from the layer; where a family has variants, the first path that exists counts.

    norms: "self", "cross" and "ffn" -> the norm of that block, in front of it or, with `norm_behind`, behind its
    residual connection; empty where the layer has another layout than block by block with a norm each.
    """

    layers: str  # path of the list of layers from the base model
    attention: Attention
    ffn_in: tuple[str, ...]
    ffn_out: tuple[str, ...]
    ffn_gate: tuple[str, ...] = ()
    cross: Attention | None = None
    norms: dict[str, str] = field(default_factory=dict)
    norm_behind: bool = False


@dataclass(frozen=True)
class Family:
    """kind: "decoder", "encoder" or "encoder-decoder"; stacks: "encoder" and/or "decoder"."""

    kind: str
    stacks: dict[str, Stack] = field(default_factory=dict)


def family_names() -> list[str]:
    """The mapped families, by transformers' `model_type`: the files of their folder."""
    return plugins.names(FOLDER)


@cache
def find_family(model_type: str) -> Family | None:
    """The family of that `model_type`, or None where no file of that name is here."""
    if model_type not in family_names():
        return None
    family: Family = plugins.load(FOLDER, model_type).FAMILY
    return family


def decoders() -> list[str]:
    """Those of them that are decoders."""
    return [name for name in family_names() if (family := find_family(name)) and family.kind == "decoder"]
