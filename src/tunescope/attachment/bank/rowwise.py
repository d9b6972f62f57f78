"""Deltas by row: those that are the same function are stacked, and torch maps the function over the rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from tunescope.attachment.site_hooks import SiteUse
from tunescope.errors import UserError
from tunescope.methods.artifact import Params, SiteDelta

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EXPERT = re.compile(r"(^|\.)experts\.\w*?\d+(\.|$)")  # or a map of one
_Use = tuple[Sequence[int], SiteUse[SiteDelta]]  # the rows that take a delta, and the delta at its site


def one_column() -> int:
    return 1


@dataclass(frozen=True, eq=False)
class Rowwise:
    """One delta for some rows of a batch, each with its own tensors; the other rows are left as they are.

    rows: (n,) the rows that have it, None for all; its tensors are (n, ...), or a single row's where `shared`.
    drops: whether the delta has dropout, of which `dropout` is what is in force.
    columns: how many tokens a row has at least, where the length is folded into the batch.
    """

    spec: SiteDelta
    batch: int
    rows: Tensor | None
    shared: bool
    drops: bool
    dropout: float
    columns: Callable[[], int] = one_column

    @property
    def reads(self) -> str:
        return self.spec.reads

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        """x (batch, ..., d_in), h (batch, ..., d_out); some families fold the length into the batch."""
        spec = replace(self.spec, dropout=self.dropout) if self.drops else self.spec  # type: ignore[type-var]
        if self.shared and self.rows is None:  # whose a token is makes no difference
            return spec.apply(p, x, h)
        self._check(x)
        by_row, before = x.reshape(self.batch, -1, x.shape[-1]), h.reshape(self.batch, -1, h.shape[-1])
        rows = None if self.rows is None else self.rows.to(h.device)
        if rows is not None:
            by_row, before = by_row[rows], before[rows]
        made = spec.apply(p, by_row, before) if self.shared else spec.apply_by_row(p, by_row, before)
        if rows is not None:
            made = h.reshape(self.batch, -1, h.shape[-1]).index_copy(0, rows, made.to(h.dtype))
        return made.reshape(*h.shape[:-1], made.shape[-1])

    def _check(self, x: Tensor) -> None:
        """UserError for chosen tokens, as a head may be given: nothing says of which row each is."""
        n, over = divmod(x.shape[0], self.batch)
        if over or (x.dim() == 2 and 1 < n < self.columns()):
            raise UserError(
                f"Bank: a map is given {x.shape[0]} chosen tokens of {self.batch} rows, and not whose they are: attach "
                "what changes it alone, or merge it."
            )


class _Place(NamedTuple):
    """Where deltas of several rows can go together: the how-manieth of its row to change it, the site, the method."""

    turn: int
    site: str
    method: type[SiteDelta]


def rowwise(
    members: Sequence[tuple[Sequence[int], Sequence[SiteUse[SiteDelta]]]],
    batch: int,
    device: torch.device,
    columns: Callable[[], int] = one_column,
) -> list[SiteUse[Rowwise]]:
    """The deltas of all members as deltas of the batch, in the order in which each row's own act.

    That is an order at what is changed: a map has several names, as a site, by its path and by its bias.

    members: for each, the rows that take it, and its deltas at their sites.
    """
    places: dict[_Place, list[_Use]] = {}
    for rows, uses in members:
        turns: Counter[tuple[nn.Module, str]] = Counter()
        for use in uses:
            changed = use.site.h.module, use.site.h.end
            place = _Place(turns[changed], use.site.name, type(use.spec))
            places.setdefault(place, []).append((rows, use))
            turns[changed] += 1
    made = []
    for place in sorted(places, key=lambda place: place.turn):
        made += [_stacked(group, batch, device, columns) for group in _alike(places[place])]
    return made


def check_rows_seen(model: PreTrainedModel, name: str, use: SiteUse[SiteDelta]) -> None:
    """Raises UserError for a delta that is called with some tokens and not told whose they are.

    So an expert is, and the head of a masked model that is given the masked tokens alone.
    """
    if getattr(model.config, "sparse_prediction", False) and use.site.h.module not in set(model.base_model.modules()):
        raise UserError(
            f"Bank: {name!r} changes {use.site.name!r}, of a head that sees some tokens of a batch (sparse_prediction) "
            "and not whose they are: attach it alone, or merge it."
        )
    if EXPERT.search(use.site.name):
        raise UserError(
            f"Bank: {name!r} holds {use.spec} at {use.site.name!r}, an expert, which sees some tokens of a batch "
            "and not whose they are: attach it alone, or put it at sites outside the experts."
        )


def dropout_of(spec: SiteDelta) -> float:
    return float(getattr(spec, "dropout", 0.0)) if "dropout" in {field.name for field in fields(spec)} else 0.0  # type: ignore[arg-type]


def _alike(given: list[_Use]) -> list[list[_Use]]:
    """Groups that differ in tensors alone, sizes made equal where the method can be padded."""
    if len(given) == 1:
        return [given]
    size = given[0][1].spec.size
    most = max(getattr(use.spec, size) for _, use in given) if size else 0
    groups: dict[SiteDelta, list[_Use]] = {}
    for rows, use in given:
        spec, tensors = use.spec.padded(use.tensors, most)
        spec = replace(spec, sites=())  # type: ignore[type-var]
        groups.setdefault(spec, []).append((rows, SiteUse(spec, use.site, tensors)))
    return list(groups.values())


def _stacked(group: list[_Use], batch: int, device: torch.device, columns: Callable[[], int]) -> SiteUse[Rowwise]:
    spec, site = group[0][1].spec, group[0][1].site
    rows = [row for some, _ in group for row in some]
    which = [index for index, (some, _) in enumerate(group) for _ in some]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    rows, which = [rows[at] for at in order], [which[at] for at in order]
    shared = len(group) == 1
    tensors = group[0][1].tensors if shared else _gathered([use.tensors for _, use in group], which, device)
    index = None if len(rows) == batch else torch.tensor(rows, device=device)
    dropout = dropout_of(spec)
    return SiteUse(Rowwise(spec, batch, index, shared, dropout > 0, dropout, columns), site, tensors)


def _gathered(given: Sequence[Params], which: Sequence[int], device: torch.device) -> Params:
    once = len(given) == len(which)
    at = torch.tensor(which, device=device)
    whole = {name: torch.stack([tensors[name].to(device) for tensors in given]) for name in given[0]}
    return {name: value if once and list(which) == sorted(which) else value[at] for name, value in whole.items()}
