"""The rest of a layer: its feed-forward, a map that is fed by others or a block of experts, and what mixes tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from os.path import commonpath

import torch
from torch import Tensor, nn

from tunescope.attachment.sites.attention_maps import place
from tunescope.attachment.sites.gradients import gradients
from tunescope.attachment.sites.places import Found, Place
from tunescope.attachment.sites.trace import Call, Seen
from tunescope.models.sites import weight_shape

Half = tuple[Call, Tensor | slice | None]
BY_FAR = 10  # times the weights of all others: then they are no feed-forward beside it


@dataclass(frozen=True)
class Dense:
    """down and what feeds it: one map, or two that are multiplied."""

    down: Call
    feeding: tuple[Call, ...]


def others(seen: Seen, name: str, taken: set[Call]) -> tuple[list[Found], str]:
    """Sites NAME.ffn and NAME.ffn.in .gate .out, those that there are, and a note on what was not found.

    In a layer that does not attend where one can see it, NAME.mixer too: what takes tokens together there.

    taken: the maps around attention.
    """
    rest = [call for call in seen.maps if call not in taken]
    mixed = mixers(rest, seen.layer.path)
    rest = [call for call in rest if not any(call is one.down or call in one.feeding for one in mixed)]
    found = [] if seen.attention or len(mixed) != 1 else [_mixer(mixed[0], f"{name}.mixer")]
    more, note = _feed_forward(seen, f"{name}.ffn", rest)
    return found + more, note


def _mixer(mixed: Dense, name: str) -> Found:
    return Found(name, place(mixed.feeding[0], "in"), place(mixed.down, "out"))


def _feed_forward(seen: Seen, name: str, rest: list[Call]) -> tuple[list[Found], str]:
    experts = _experts(seen)
    rest = [call for call in rest if not any(call.path.startswith(f"{block.path}.") for block in experts)]
    dense = _dense(rest, seen.layer.path)
    if len(experts) + len(dense) != 1:
        every = [one.path for one in experts] + [one.down.path for one in dense]
        return [], f"ffn: {' and '.join(every) or 'none that looks like one'}"
    if experts:
        block = experts[0]
        x, h = Place(block.path, "in", None, block.x.shape[-1]), Place(block.path, "out", None, block.h.shape[-1])
        return [Found(name, x, h, is_block=True)], ""
    return _sites(dense[0], name)


def _sites(dense: Dense, name: str) -> tuple[list[Found], str]:
    down, halves = dense.down, _halves(dense)
    linear = [_is_linear_in(down.x, *half) for half in halves] if len(halves) == 2 else [True]
    out = Found(f"{name}.out", place(down, "in"), place(down, "out"))
    if linear.count(True) != 1:
        whole = Found(name, place(dense.feeding[0], "in"), out.h)
        return [out, whole], "ffn.in and ffn.gate are not told apart"
    up = halves[linear.index(True)]
    gates = [_mapped(f"{name}.gate", *half) for half in halves if half is not up]
    return [_mapped(f"{name}.in", *up), *gates, out, Found(name, place(up[0], "in"), out.h)], ""


def _mapped(name: str, call: Call, chosen: Tensor | slice | None) -> Found:
    return Found(name, place(call, "in"), place(call, "out", chosen))


def _dense(rest: Sequence[Call], layer: str) -> list[Dense]:
    """All maps as one feed-forward, or those of single modules as one each, beside which loose ones do not count."""
    whole = _of(rest)
    if whole is not None:
        return [whole]
    by_parent = sorted(rest, key=_parent)
    groups = {parent: sorted(group, key=lambda call: call.at) for parent, group in groupby(by_parent, key=_parent)}
    found = {parent: one for parent, group in groups.items() if (one := _of(group)) is not None}
    within = [one for parent, one in found.items() if parent != layer] or list(found.values())
    return [one for one in within if _size(one) > BY_FAR * sum(map(_size, within)) / (1 + BY_FAR)] or within


def _size(dense: Dense) -> int:
    return math.prod(weight_shape(dense.down.module))


def _parent(call: Call) -> str:
    return call.path.rpartition(".")[0]


def mixers(maps: Sequence[Call], layer: str) -> list[Dense]:
    """Maps that are fed by others across tokens, each with those: attention that is computed by itself, or a scan."""
    left, found = list(maps), []
    for call in maps:
        feeding = _feeding(call, [other for other in left if other.at < call.at])
        if call in left and any(_crosses(call, other) for other in feeding):
            found.append(_whole(call, feeding, [one for one in maps if one.at > call.at], layer))
            gone = {found[-1].down, call, *feeding}
            left = [other for other in left if other not in gone]
    return found


def _whole(call: Call, feeding: Sequence[Call], later: Sequence[Call], layer: str) -> Dense:
    """To the last map of the module that holds them all, where it is not the layer itself."""
    held = commonpath([one.path.replace(".", "/") for one in (call, *feeding)]).replace("/", ".")
    within = [one for one in later if one.path.startswith(f"{held}.") and len(held) > len(layer)]
    behind = [one for one in within if _feeding(one, [call, *feeding])]
    return Dense(behind[-1] if behind else call, tuple(feeding))


def _crosses(call: Call, other: Call) -> bool:
    """Whether the last token of what enters one map hangs on earlier tokens of what leaves the other."""
    if call.x.dim() != 3 or other.h.dim() != 3:
        return False
    (gradient,) = gradients(call.x[:, -1], [other.h])
    return gradient is not None and bool(gradient[:, :-1].any())


def _of(maps: Sequence[Call]) -> Dense | None:
    """The feed-forward that these maps are, each of them; None where they are something else."""
    fed = {call: _feeding(call, [other for other in maps if other.at < call.at]) for call in maps}
    downs = [call for call, feeding in fed.items() if feeding]
    if len(downs) != 1 or len({call.path for call in maps}) != len(maps):
        return None
    dense = Dense(downs[0], tuple(fed[downs[0]]))
    width, sizes = weight_shape(dense.down.module)[1], [weight_shape(one.module)[0] for one in dense.feeding]
    if torch.equal(dense.down.x, dense.feeding[0].h):  # two maps in a row are one of lower rank
        return None
    is_one = len(maps) == 1 + len(dense.feeding) and len({id(one.x) for one in dense.feeding}) == 1
    return dense if is_one and (sizes in ([width], [2 * width], [width, width])) else None


def _feeding(call: Call, earlier: Sequence[Call]) -> list[Call]:
    made = gradients(call.x, [other.h for other in earlier])
    return [other for other, gradient in zip(earlier, made, strict=True) if gradient is not None]


def _halves(dense: Dense) -> list[Half]:
    width, (first, *more) = weight_shape(dense.down.module)[1], dense.feeding
    if more:
        return [(first, None), (more[0], None)]
    if weight_shape(first.module)[0] == width:
        return [(first, None)]
    for halves in ((slice(0, width), slice(width, 2 * width)), (slice(0, None, 2), slice(1, None, 2))):
        if [_is_linear_in(dense.down.x, first, half) for half in halves].count(True) == 1:
            break
    else:
        halves = (slice(0, width), slice(width, 2 * width))
    return [(first, torch.arange(2 * width)[half]) for half in halves]


def _is_linear_in(of: Tensor, call: Call, chosen: Tensor | slice | None) -> bool:
    """Whether the second derivative by these columns of the map's output is zero."""
    (slope,) = gradients(of, [call.h], again=True)
    if slope is None:
        return False
    kept = slope if chosen is None else slope[..., chosen]
    (bend,) = gradients(kept, [call.h])
    return bend is None or not bool((bend if chosen is None else bend[..., chosen]).any())


def _experts(seen: Seen) -> list[Call]:
    """Blocks of experts, the outermost modules that are: each token by itself, with maps beside linear ones."""
    attending = [one.path for one in seen.attention]
    found: list[Call] = []
    for call in sorted(seen.blocks, key=lambda one: len(one.path)):
        inside = any(call.path.startswith(f"{one.path}.") for one in found)
        if inside or any(f"{path}.".startswith(f"{call.path}.") for path in attending):
            continue
        if _holds_experts(call.module) and call.x.shape[-1] == call.h.shape[-1] and _is_by_token(call):
            found.append(call)
    return found


def _holds_experts(module: nn.Module) -> bool:
    """Weights of several maps in one tensor, or several like modules of maps in a list."""
    if not any(module.children()):
        return False
    lists = [one for one in module.modules() if isinstance(one, nn.ModuleList | nn.ModuleDict) and len(one) > 1]
    return any(value.dim() == 3 for value in module.parameters()) or any(
        value.dim() == 2 for one in lists for value in one.parameters()
    )


def _is_by_token(call: Call) -> bool:
    """Whether what leaves at the last token hangs on no other."""
    if not call.h.requires_grad or call.x.dim() < 2 or call.x.shape[:-1] != call.h.shape[:-1]:
        return False
    flat = call.h.reshape(-1, call.h.shape[-1])
    (gradient,) = gradients(flat[-1], [call.x])
    return gradient is not None and not bool(gradient.reshape(len(flat), -1)[:-1].any())
