"""What a method trains, stores and keeps beside a model while it serves, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tunescope.errors import UserError
from tunescope.theory.costs.shapes import Shape, at_least

BLOCKS = ("attn", "ffn")  # sites of an adapter: what leaves the attention or the feed-forward block
FLOAT32 = 4  # bytes
TRAINED_BYTES = 4 * FLOAT32  # the number, its gradient, and Adam's two moments (Kingma & Ba 2015, algorithm 1)
CONTEXTS = ("soft", "prefix")


@dataclass(frozen=True)
class Method:
    """size: length of a soft prompt or prefix, rank of a LoRA, bottleneck of an adapter. "none" is the floor.

    The floor is the frozen model with a gradient down to its embeddings, and nothing trained.
    """

    kind: Literal["none", "soft", "prefix", "lora", "adapter", "full"]
    size: int = 0
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = ("none", "soft", "prefix", "lora", "adapter", "full")
        if self.kind not in kinds:
            raise UserError(f"Method(kind={self.kind!r}): the kinds are {', '.join(kinds)}.")
        if self.kind in (*CONTEXTS, "lora", "adapter"):
            at_least(1, self, ("size",))
        elif self.size:
            raise UserError(f"Method({self.kind!r}, size={self.size}): it has no size.")
        if (self.kind in ("lora", "adapter")) != bool(self.sites):
            raise UserError(f"Method({self.kind!r}, sites={self.sites}): LoRA and adapters have sites, and no other.")

    @property
    def length(self) -> int:
        """Positions that a context takes in the attention; 0 for what is none."""
        return self.size if self.kind in CONTEXTS else 0


def of(spec: object) -> Method:
    """The method of one of our specs. Raises UserError for what the cost model does not know."""
    counted = getattr(spec, "counted", None)
    if counted is not None:
        return Method(counted.kind, counted.size, tuple(counted.sites))
    raise UserError(
        f"The cost model has no formula for {spec}. It knows Soft, Prefix without an MLP, LoRA, Adapter without norm, "
        "learned scale, heads or stream, and Full."
    )


def trained(method: Method, shape: Shape) -> int:
    """Parameters that the optimiser sees, which are those that an artifact stores."""
    if method.kind == "soft":
        return method.size * shape.width
    if method.kind == "prefix":
        return method.size * shape.per_token
    if method.kind == "lora":
        return shape.layers * method.size * sum(sum(shape.maps[site]) for site in sites(method, shape))
    if method.kind == "adapter":  # two maps and their biases
        one = 2 * method.size * shape.width + method.size + shape.width
        return shape.layers * one * len(sites(method, shape))
    return shape.parameters if method.kind == "full" else 0


def weight_bytes(stored: float, *, full: bool) -> float:
    """Of a weight of the model itself, beside what is trained.

    stored: of a frozen one. full: all are trained, and are themselves the trained numbers in float32; of 16 bits there
    is a copy to compute with (Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1).
    """
    return 0 if full and stored >= FLOAT32 else stored


def stored_bytes(method: Method, shape: Shape, each: int = 4) -> int:
    """Of an artifact's file, but for its header: float32 unless told, as training leaves it.

    Raises UserError where there is no artifact.
    """
    if not (found := trained(method, shape)):
        raise UserError(f"{method} has no artifact to keep.")
    return each * found


def hot_bytes(method: Method, shape: Shape) -> int:
    """Of an artifact ready beside the model, unmerged: a context as keys and values, anything else as it is stored."""
    return shape.bytes * (method.length * shape.per_token or trained(method, shape))


def sites(method: Method, shape: Shape) -> tuple[str, ...]:
    """Those of LoRA and adapters. Raises UserError where the shape has not all of them."""
    there = BLOCKS if method.kind == "adapter" else tuple(shape.maps)
    if missing := [site for site in method.sites if site not in there]:
        raise UserError(f"{method}: no site {missing[0]!r} in this shape. There are: {', '.join(there)}.")
    return tuple(dict.fromkeys(method.sites))


def added(method: Method, shape: Shape) -> int:
    """Weights that a token passes beside the frozen ones, where nothing is merged."""
    return trained(method, shape) if method.kind in ("lora", "adapter") else 0
