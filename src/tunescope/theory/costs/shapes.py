"""A decoder's shape, and what follows from it: parameters, products of a token, bytes of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tunescope.errors import UserError

KINDS = ("gpt2", "llama")


@dataclass(frozen=True)
class Shape:
    """Layers of one of two kinds, and the tables around them.

    kind: "gpt2" (biases everywhere, layer norms, plain feed-forward, a table of `positions`) or "llama" (no biases, RMS
    norms, gated feed-forward, rotation, so positions=0). tied: whether the head is the embedding table.
    bytes: of one weight, activation and key; 4 is float32, 2 is bfloat16.
    """

    kind: Literal["gpt2", "llama"]
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    tied: bool = False
    positions: int = 0
    bytes: int = 2

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"Shape(kind={self.kind!r}): the kinds of layer are {' and '.join(KINDS)}.")
        sizes = ("layers", "width", "heads", "kv_heads", "head_size", "ffn", "vocabulary", "bytes")
        at_least(1, self, sizes)
        at_least(0, self, ("positions",))
        if self.heads % self.kv_heads:
            raise UserError(
                f"Shape(heads={self.heads}, kv_heads={self.kv_heads}): heads share keys in groups of one size, so "
                "kv_heads divides heads."
            )

    @property
    def maps(self) -> dict[str, tuple[int, int]]:
        """The linear maps of one layer by site: widths in and out."""
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        found = {"attn.q": (self.width, q), "attn.k": (self.width, kv), "attn.v": (self.width, kv)}
        found |= {"attn.o": (q, self.width), "ffn.in": (self.width, self.ffn), "ffn.out": (self.ffn, self.width)}
        return found | ({"ffn.gate": (self.width, self.ffn)} if self.kind == "llama" else {})

    @property
    def linear(self) -> int:
        """Weights of the maps of all layers: a token passes each once, at two operations a weight."""
        return self.layers * sum(d_in * d_out for d_in, d_out in self.maps.values())

    @property
    def head(self) -> int:
        return self.width * self.vocabulary

    @property
    def parameters(self) -> int:
        """All, tied ones once: maps, tables, norms (two a layer and a last), and GPT-2's biases."""
        has_biases = self.kind == "gpt2"
        biases = self.layers * sum(d_out for _, d_out in self.maps.values()) if has_biases else 0
        norms = (2 * self.layers + 1) * self.width * (2 if has_biases else 1)
        return self.linear + biases + norms + self.head * (1 if self.tied else 2) + self.positions * self.width

    @property
    def attended(self) -> int:
        """Operations of a query and a key in all layers: score and mix, two a number of each head."""
        return 4 * self.layers * self.heads * self.head_size

    @property
    def per_token(self) -> int:
        """Numbers of one token's keys and values in all layers."""
        return self.layers * 2 * self.kv_heads * self.head_size


def of(config: Any, bytes: int = 4) -> Shape:
    """The shape that a transformers config of GPT-2 or Llama says. Raises UserError for any other."""
    kind = config.model_type
    if kind not in KINDS or getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        raise UserError(
            f"The cost model knows the layers of {' and '.join(KINDS)}, the latter without biases; this model's "
            f"type is {kind!r}. Give a Shape(...) of the nearest kind."
        )
    width, heads = config.hidden_size, config.num_attention_heads
    own = kind == "llama"
    return Shape(
        kind=kind,
        layers=config.num_hidden_layers,
        width=width,
        heads=heads,
        kv_heads=config.num_key_value_heads if own else heads,
        head_size=(getattr(config, "head_dim", None) if own else None) or width // heads,
        ffn=config.intermediate_size if own else config.n_inner or 4 * width,
        vocabulary=config.vocab_size,
        tied=config.tie_word_embeddings,
        positions=0 if own else config.n_positions,
        bytes=bytes,
    )


def at_least(least: int, given: object, names: tuple[str, ...]) -> None:
    """Raises UserError for the first of the fields that is smaller."""
    for name in names:
        if (value := getattr(given, name)) < least:
            raise UserError(f"{type(given).__name__}({name}={value}): {name} is at least {least}.")
