"""What a probe is given: tensors that were recorded, by attention module. No model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.report.finding import AttentionMap

SHOWN = 48  # tokens of a text in a picture


@dataclass(frozen=True)
class Layer:
    """One attention module in one run, in float64, grouped heads repeated, contexts first.

    weights: (batch, heads, query, n_context + content), after softmax.
    values: (batch, heads, n_context + content, d).
    output: (batch, heads, query, d), before the output projection.
    real: (batch, query), False at padding.
    is_shared: whether the context's values are the same for every row.
    made_in: what the model computed them in.
    """

    weights: Tensor
    values: Tensor
    output: Tensor
    n_context: int
    real: Tensor
    is_shared: bool = True
    made_in: torch.dtype = torch.float64

    @property
    def share(self) -> Tensor:
        """(batch, heads, query), of attention that goes to the context."""
        return self.weights[..., : self.n_context].sum(-1)

    @property
    def bias(self) -> Tensor:
        """(batch, heads, query, d), what the context adds to the output."""
        return self.weights[..., : self.n_context] @ self.values[..., : self.n_context, :]

    @property
    def content(self) -> Tensor:
        """(batch, heads, query, d), what the text adds to the output."""
        return self.weights[..., self.n_context :] @ self.values[..., self.n_context :, :]

    @property
    def pattern(self) -> Tensor:
        """(batch, heads, query, content), attention on the content alone; NaN where there is none."""
        on_content = self.weights[..., self.n_context :]
        return on_content / on_content.sum(-1, keepdim=True)

    def at_real(self, values: Tensor) -> Tensor:
        """(batch, heads, query, ...) -> (heads, positions, ...): real queries alone, all rows one after the other."""
        return values.transpose(0, 1)[:, self.real]


@dataclass(frozen=True)
class Maps:
    """The frozen linear maps of one attention module, one a head, grouped heads repeated.

    query and key: (heads, d, width); output: (heads, width, d).
    """

    query: Tensor
    key: Tensor
    output: Tensor
    scaling: float


@dataclass(frozen=True)
class Seen:
    """All that was recorded, "decoder.0.self" -> Layer, in order of depth.

    along: the whole model run with everything attached.
    bare: the whole model run with nothing attached, the text at the same positions.
    held: each attention module run alone, everything attached, on the inputs that it had in `bare`.
    no_bare: why `bare` and `held` are empty; "" where they are not.
    tokens: stack -> the tokens of each row, padding among them.
    real: stack -> (batch, text), True at what is no padding; a stack without padding may lack.
    virtual: method -> (n, width), the embeddings that stand in the place of tokens.
    table: (vocabulary, width), the model's embeddings; at the scale of `virtual`, where there are any.
    """

    attached: str
    along: Mapping[str, Layer] = field(default_factory=dict)
    bare: Mapping[str, Layer] = field(default_factory=dict)
    held: Mapping[str, Layer] = field(default_factory=dict)
    no_bare: str = ""
    maps: Mapping[str, Maps] = field(default_factory=dict)
    tokens: Mapping[str, list[list[str]]] = field(default_factory=dict)
    real: Mapping[str, Tensor] = field(default_factory=dict)
    virtual: Mapping[str, Tensor] = field(default_factory=dict)
    table: Tensor | None = None
    vocabulary: Mapping[int, str] = field(default_factory=dict)

    def word(self, token: int) -> str:
        return self.vocabulary.get(token, f"token {token}")


def attention_map(
    seen: Seen, run: Literal["bare", "held", "along"], name: str, head: int, *, content: bool = False
) -> AttentionMap:
    """One head's attention in the shortest row, its last query marked, at most SHOWN of the last tokens.

    content: over the text's keys alone, renormalised.
    """
    layer: Layer = getattr(seen, run)[name]
    stack, _, which = name.split(".")
    row = int(layer.real.sum(-1).argmin())
    place = layer.real[row].nonzero()[:, 0][-SHOWN:]
    among = _real_keys(seen, row, which, layer)[-SHOWN:]
    n_context = 0 if content else layer.n_context
    weights = layer.pattern[row, head] if content else layer.weights[row, head]
    columns = torch.cat([torch.arange(n_context), n_context + among.cpu()]).to(weights.device)
    title = {"bare": "with nothing attached", "held": "attached, same inputs", "along": "attached"}[run]
    return AttentionMap(
        title=title if content else f"Attention of {name}, head {head}, {title}",
        queries=_named(seen, stack, row, place),
        keys=[
            *(f"c{i}" for i in range(n_context)),
            *_named(seen, "encoder" if which == "cross" else stack, row, among),
        ],
        values=weights[place][:, columns].tolist(),
        n_context=n_context,
        marked=len(place) - 1,
    )


def _named(seen: Seen, stack: str, row: int, places: Tensor) -> list[str]:
    """The tokens at these places; their numbers in a stack that reads none, such as one of sounds or pictures."""
    known = seen.tokens.get(stack)
    return [f"place {int(at)}" if known is None else known[row][int(at)] for at in places]


def _real_keys(seen: Seen, row: int, which: str, layer: Layer) -> Tensor:
    if which != "cross":
        return layer.real[row].nonzero()[:, 0]
    if (real := seen.real.get("encoder")) is None:
        return torch.arange(layer.pattern.shape[-1])
    return real[row].nonzero()[:, 0]


def finite(values: Tensor) -> Tensor:
    """Those of the values that are defined."""
    return values[torch.isfinite(values)]


def as_numbers(rows: Sequence[Tensor]) -> list[list[float]]:
    """Rows of one length, as plain numbers, filled up with NaN."""
    width = max((len(row) for row in rows), default=0)
    return [[*map(float, row), *[float("nan")] * (width - len(row))] for row in rows]


def with_context(probe: str, seen: Seen) -> dict[str, Layer]:
    """The attention modules of the attached run that have a context, by name.

    Raises UserError, in the name of the probe, where none has, and where nothing was run.
    """
    check_run(probe, seen)
    found = {name: layer for name, layer in seen.along.items() if layer.n_context}
    if not found:
        raise UserError(
            f"Probe {probe}: {seen.attached} puts nothing before the text, so no head attends to a context. "
            "Type: tunescope probe pattern, which says what it did to attention over the text."
        )
    return found


def check_run(probe: str, seen: Seen) -> None:
    """UserError, in the name of the probe, where no text was run."""
    if not seen.along:
        raise UserError(f"Probe {probe} looks at what running a text left, and none was: see(model, what, batch).")


def summary(values: Tensor) -> tuple[float, float, float]:
    """(least, mean, most) of what is defined; NaN where nothing is."""
    known = finite(values.double())
    if not known.numel():
        return (float("nan"),) * 3
    return float(known.min()), float(known.mean()), float(known.max())
