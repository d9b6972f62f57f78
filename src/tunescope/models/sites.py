"""The places where a delta can act, by name, and what they are in a given model.

In every layer: ``self.q .k .v .o`` and ``cross.q .k .v .o`` (linear maps; a part of one where the model fuses them),
``self`` and ``cross`` (the whole attention block, after its output projection), ``self.heads`` and ``cross.heads``
(the concatenated heads before it), ``ffn.in .gate .out`` (linear maps) and ``ffn`` (the whole block); ``mixer`` where a
layer takes tokens together and no attention can be seen. Which of them there are depends on the model.
``attn`` and ``attn.X`` stand for ``self`` and ``cross`` alike; ``encoder.`` or ``decoder.`` in front keeps to a stack,
and a whole name, ``decoder.3.self.q``, to a layer. Linear maps are sites by their paths from the base model too:
``path:*.query_key_value``, or ``all-linear`` (`tunescope.attachment.sites.choice`).
"""

from __future__ import annotations

import difflib
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from tunescope.errors import UserError
from tunescope.methods.artifact import SiteShape
from tunescope.models.family import Slice, Stack, family_names, find_family

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STREAM = ("stream", "stream behind")


@dataclass(frozen=True)
class Tap:
    """A tensor in the model: the input or output of a module, all of its columns or some.

    The module is held weakly, so that a model goes when nobody else holds it, whoever remembers its sites.
    """

    place: weakref.ref[nn.Module]
    end: Literal["in", "out"]
    columns: Tensor | slice | None = None  # of the last axis
    width: int = 0

    @classmethod
    def on(
        cls, module: nn.Module, end: Literal["in", "out"], columns: Tensor | slice | None = None, width: int = 0
    ) -> Tap:
        return cls(weakref.ref(module), end, columns, width)

    @property
    def module(self) -> nn.Module:
        found = self.place()
        assert found is not None  # its model is gone
        return found

    def read(self, whole: Tensor) -> Tensor:
        if isinstance(self.columns, Tensor):
            return whole[..., self.columns.to(whole.device)]
        return whole if self.columns is None else whole[..., self.columns]

    def write(self, whole: Tensor, part: Tensor) -> Tensor:
        """A copy of `whole` with its columns replaced; `whole` itself is left as it is."""
        if self.columns is None:
            return part
        if isinstance(self.columns, slice):
            return torch.slice_scatter(whole, part, -1, self.columns.start, self.columns.stop)
        return whole.index_copy(-1, self.columns.to(whole.device), part)


@dataclass(frozen=True)
class Residual:
    """A block's residual connection: what it adds to what leaves the block, and the norm behind the sum, if there."""

    stream: Tap
    norm: Tap | None

    def output(self) -> Callable[[Tensor, Tensor], Tensor]:
        """(h, stream) -> the state that the model has behind it."""
        norm = None if self.norm is None else self.norm.module

        def state(h: Tensor, stream: Tensor) -> Tensor:
            total = stream + h
            return total if norm is None else norm(total)

        return state


@dataclass(frozen=True)
class Site:
    """x enters, h leaves and may be changed; query is the layer's query map, where there is one.

    residual: of a whole block, where the family's layout says it. is_block: one module that is more than a linear map.
    """

    name: str  # "decoder.0.self.q"
    x: Tap
    h: Tap
    query: Tap | None
    n_heads: int
    residual: Residual | None = None
    is_block: bool = False

    @property
    def is_linear(self) -> bool:
        """Whether h is what one frozen linear map makes of x, so that a weight change can be merged into it."""
        return self.x.module is self.h.module and self.h.end == "out" and not self.is_block

    def source(self, reads: str) -> Tap:
        """What a delta reads beside h. Raises UserError where there is no such thing here."""
        if reads in STREAM:
            if self.residual is None:
                raise UserError(
                    f"Site {self.name!r} has no residual connection of its own to read: use whole blocks (ffn, attn), "
                    "in a family that adds them one after the other."
                )
            return self.residual.stream
        source = self.query if reads == "query" else self.x
        if source is None:
            raise UserError(f"Site {self.name!r} has no query to read: use the sites 'attn' or 'attn.heads'.")
        return source

    def shape(self, reads: str) -> SiteShape:
        has_bias = not self.is_linear or getattr(self.h.module, "bias", None) is not None
        return SiteShape(self.source(reads).width, self.h.width, self.n_heads, has_bias)


def find_sites(model: PreTrainedModel, kind: str) -> dict[str, Site]:
    """Every site of a model of that kind by name ("decoder.0.ffn.in"), in order of depth, as its family's file says.

    Raises UserError for a family without a file, and for a model of another layout.
    """
    model_type = model.config.model_type
    family = find_family(model_type)
    if family is None:
        raise UserError(
            f"Family {model_type!r} has no file that says where its sites are, and without weights, or sharded, it "
            "cannot be run to look for them: load it with weights, and attach before fully_shard. With a file: "
            f"{', '.join(family_names())}."
        )
    sites: dict[str, Site] = {}
    half = kind if family.kind == "encoder-decoder" else "encoder-decoder"
    for name, stack in family.stacks.items():
        if half not in (name, "encoder-decoder"):
            continue
        name = kind if len(family.stacks) == 1 else name  # a BERT may be a decoder
        for index, layer in enumerate(model.base_model.get_submodule(stack.layers)):
            for site in _layer_sites(layer, stack, f"{name}.{index}"):
                sites[site.name] = site
    return sites


def select(sites: Mapping[str, Site], selectors: tuple[str, ...], asker: str, model_type: str) -> list[Site]:
    """The sites that the selectors name; UserError, with the nearest name, for one that names none."""
    chosen: dict[str, Site] = {}
    for selector in selectors:
        found = {name: site for name, site in sites.items() if _matches(name, selector)}
        if not found:
            have = sorted({_short(name) for name in sites})
            near = difflib.get_close_matches(selector, [*have, *(_attn(name) for name in have)], n=1)
            raise UserError(
                f"{asker} asks for site {selector!r}, which family {model_type!r} does not have."
                + (f" Did you mean {near[0]!r}?" if near else "")
                + f" {model_type!r} has: {', '.join(have)} (attn = self and cross). Linear maps can be had by their "
                "paths too: sites=all-linear, or sites=path:GLOB."
            )
        chosen.update(found)
    return list(chosen.values())


def _short(name: str) -> str:
    return name.split(".", 2)[2]


def _attn(short: str) -> str:
    return short.replace("self", "attn", 1).replace("cross", "attn", 1)


def _matches(name: str, selector: str) -> bool:
    if selector == name:
        return True
    stack, _, short = name.split(".", 2)
    head, _, rest = selector.partition(".")
    if head in ("encoder", "decoder"):
        if head != stack:
            return False
        selector = rest
    return selector in (short, _attn(short))


def _layer_sites(layer: nn.Module, stack: Stack, prefix: str) -> list[Site]:
    found = _attention_sites(layer, stack, "self", f"{prefix}.self")
    if stack.cross is not None:
        found += _attention_sites(layer, stack, "cross", f"{prefix}.cross")
    into, out = _first(layer, stack.ffn_in), _first(layer, stack.ffn_out)
    gate = _first(layer, stack.ffn_gate) if stack.ffn_gate else None
    if into is None or out is None:
        raise UserError(f"{prefix}: no feed-forward at {stack.ffn_in} and {stack.ffn_out}: another layout than mapped.")
    for name, module in (("in", into), ("gate", gate), ("out", out)):
        if module is not None:
            found.append(Site(f"{prefix}.ffn.{name}", _tap(module, "in"), _tap(module, "out"), None, 1))
    x, h = _tap(into, "in"), _tap(out, "out")
    return [*found, Site(f"{prefix}.ffn", x, h, None, 1, _residual(layer, stack, "ffn", x))]


def _residual(layer: nn.Module, stack: Stack, block: str, x: Tap) -> Residual | None:
    """Of a block that x enters."""
    if block not in stack.norms:
        return None
    norm = layer.get_submodule(stack.norms[block])
    return Residual(x, Tap.on(norm, "out")) if stack.norm_behind else Residual(Tap.on(norm, "in", None, x.width), None)


def _attention_sites(layer: nn.Module, stack: Stack, block: str, prefix: str) -> list[Site]:
    attention = stack.attention if block == "self" else stack.cross
    assert attention is not None
    head_dim = int(getattr(layer.get_submodule(attention.module), attention.head_dim))
    maps = {name: _part(layer, getattr(attention, name), head_dim) for name in ("q", "k", "v", "o")}
    (q_in, q), (o_in, o) = maps["q"], maps["o"]
    n_heads = o_in.width // head_dim
    linear = [Site(f"{prefix}.{name}", x, h, q, n_heads) for name, (x, h) in maps.items()]
    whole = Site(prefix, q_in, o, q, n_heads, _residual(layer, stack, block, q_in))
    return [*linear, Site(f"{prefix}.heads", q_in, o_in, q, n_heads), whole]


def _part(layer: nn.Module, place: str | Slice, head_dim: int) -> tuple[Tap, Tap]:
    if isinstance(place, str):
        module = layer.get_submodule(place)
        return _tap(module, "in"), _tap(module, "out")
    module = layer.get_submodule(place.path)
    whole = weight_shape(module)[0]
    width = whole // place.of
    if not place.per_head:
        return _tap(module, "in"), Tap.on(module, "out", slice(place.index * width, (place.index + 1) * width), width)
    with torch.inference_mode(False):  # it is kept, wherever it was first asked for
        columns = torch.arange(whole, device="cpu").view(-1, place.of, head_dim)[:, place.index].reshape(-1)
    return _tap(module, "in"), Tap.on(module, "out", columns, width)


def _tap(module: nn.Module, end: Literal["in", "out"]) -> Tap:
    return Tap.on(module, end, None, weight_shape(module)[0 if end == "out" else 1])


def _first(layer: nn.Module, paths: tuple[str, ...]) -> nn.Module | None:
    for path in paths:
        try:
            return layer.get_submodule(path)
        except AttributeError:
            continue
    return None


def is_map(module: nn.Module) -> bool:
    """Whether it is a linear map, however it stores its weight."""
    return isinstance(module, nn.Linear) or is_transposed(module)


def is_transposed(module: nn.Module) -> bool:
    """Whether the weight is stored (in, out), as transformers' Conv1D does."""
    return type(module).__name__ == "Conv1D"


def weight_shape(module: nn.Module) -> tuple[int, int]:
    """(out, in) of a linear map, however it is stored."""
    if isinstance(module, nn.Linear):  # packed, its weight has another shape
        return module.out_features, module.in_features
    rows, columns = module.weight.shape  # type: ignore[misc]
    return (columns, rows) if is_transposed(module) else (rows, columns)
