"""The linear maps around attention, by what its queries, keys and values and the rest of the layer depend on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from tunescope.attachment.sites.gradients import columns, gradients
from tunescope.attachment.sites.places import Found, Place, as_columns
from tunescope.attachment.sites.trace import Attention, Call, Seen
from tunescope.models.sites import weight_shape


@dataclass
class Around:
    """What was found around one attention module. maps: all those that it depends on, and its output map.

    notes: what was not found, and why.
    """

    sites: list[Found] = field(default_factory=list)
    maps: set[Call] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def place(call: Call, end: Literal["in", "out"], chosen: Tensor | slice | None = None) -> Place:
    """One end of a linear map, all columns or the chosen ones (indices)."""
    width = weight_shape(call.module)[0 if end == "out" else 1]
    if chosen is None:
        return Place(call.path, end, None, width)
    kept = as_columns(chosen, call.module)
    many = width if kept is None else len(range(width)[kept]) if isinstance(kept, slice) else len(kept)
    return Place(call.path, end, kept, many)


def around(seen: Seen, one: Attention) -> Around:
    """Sites NAME.q .k .v .o, NAME.heads and NAME; those that there are."""
    found = Around()
    before = [call for call in seen.maps if call.at < one.at]
    taps: dict[str, tuple[Place, Place]] = {}
    entry: Place | None = None
    for role, tensor in (("q", one.query), ("k", one.key), ("v", one.value)):
        hits = _hits(tensor, before)
        found.maps |= {call for call, _ in hits}
        last = _last(hits)
        if len(last) != 1:
            found.notes.append(f"{role}: {_last_names(last)}")
            continue
        call, gradient = last[0]
        taps[role] = place(call, "in"), place(call, "out", columns(gradient).nonzero()[:, 0])
        if role == "q":
            entry = place(_entry(call, hits, one), "in")
    output = _output(seen, one)
    if output is None:
        found.notes.append("o: no linear map behind")
    else:
        found.maps |= {call for call, _ in _hits(output.x, seen.maps)} | {output}
        taps["o"] = place(output, "in"), place(output, "out")
    found.sites = list(_sites(one, taps, entry, output))
    return found


def _hits(of: Tensor, maps: Sequence[Call]) -> list[tuple[Call, Tensor]]:
    made = gradients(of, [call.h for call in maps])
    return [(call, gradient) for call, gradient in zip(maps, made, strict=True) if gradient is not None]


def _last(hits: Sequence[tuple[Call, Tensor]]) -> list[tuple[Call, Tensor]]:
    """Those that no other one lies behind."""
    passed: set[Call] = set()
    for call, _ in hits:
        earlier = [other for other, _ in hits if other.at < call.at and other not in passed]
        made = gradients(call.x, [other.h for other in earlier])
        passed |= {other for other, gradient in zip(earlier, made, strict=True) if gradient is not None}
    return [(call, gradient) for call, gradient in hits if call not in passed]


def _entry(last: Call, hits: Sequence[tuple[Call, Tensor]], one: Attention) -> Call:
    """The first map on the way to the query that lies in attention's own module: what enters it enters the block."""
    within = [call for call, _ in hits if call.path.startswith(f"{one.path}.") and call.at <= last.at]
    return min(within, key=lambda call: call.at, default=last)


def _output(seen: Seen, one: Attention) -> Call | None:
    """The first map whose input depends on what attention gives."""
    for call in seen.maps:
        if call.at > one.at and gradients(call.x, [one.output])[0] is not None:
            return call
    return None


def _sites(
    one: Attention, taps: dict[str, tuple[Place, Place]], entry: Place | None, output: Call | None
) -> Iterator[Found]:
    name, n_heads = one.place.name, one.place.n_heads
    query = taps["q"][1] if "q" in taps else None
    for role, (x, h) in taps.items():
        yield Found(f"{name}.{role}", x, h, query, n_heads)
    if entry is None or output is None:
        return
    if _is_joined(one.output, output.x):
        yield Found(f"{name}.heads", entry, place(output, "in"), query, n_heads)
    yield Found(name, entry, place(output, "out"), query, n_heads)


def _is_joined(heads: Tensor, x: Tensor) -> bool:
    """Whether x is the heads one beside the other and nothing else: no gate, no norm between."""
    joined = heads.transpose(1, 2).flatten(2).detach()
    return joined.numel() == x.numel() and torch.equal(joined.reshape(-1), x.detach().reshape(-1))


def _last_names(last: Sequence[tuple[Call, Tensor]]) -> str:
    return " and ".join(call.path.rpartition(".")[2] for call, _ in last) or "none of this layer"
