"""A site before it is bound to a model: paths instead of modules, so that it can be kept, compared and written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from tunescope.models.sites import Residual, Site, Tap, weight_shape

Columns = tuple[int, ...] | slice | None


@dataclass(frozen=True)
class Place:
    """A `Tap`: a module's path from the base model, which end of it, which columns; None for all."""

    path: str
    end: Literal["in", "out"]
    columns: Columns
    width: int

    def __str__(self) -> str:
        """As a manifest has it: "layers.0.self_attn.qkv_proj:out[0:32]"."""
        return f"{self.path}:{self.end}{_shown(self.columns)}"

    def moved(self, away: str, to: str) -> Place:
        return replace(self, path=to + self.path.removeprefix(away))

    def tap(self, modules: Mapping[str, nn.Module]) -> Tap:
        columns = self.columns
        if isinstance(columns, tuple):
            with torch.inference_mode(False):  # it is kept, wherever it was first asked for
                return Tap.on(modules[self.path], self.end, torch.tensor(columns, device="cpu"), self.width)
        return Tap.on(modules[self.path], self.end, columns, self.width)


@dataclass(frozen=True)
class Found:
    """A `Site` without its model."""

    name: str
    x: Place
    h: Place
    query: Place | None = None
    n_heads: int = 1
    is_block: bool = False

    def __str__(self) -> str:
        return (
            str(self.h)
            if self.x == replace(self.h, end="in", columns=None, width=self.x.width)
            else f"{self.x} -> {self.h}"
        )

    def moved(self, name: str, away: str, to: str) -> Found:
        """The same in another layer."""
        query = None if self.query is None else self.query.moved(away, to)
        return replace(self, name=name, x=self.x.moved(away, to), h=self.h.moved(away, to), query=query)

    def site(self, modules: Mapping[str, nn.Module], residual: Residual | None = None) -> Site:
        query = None if self.query is None else self.query.tap(modules)
        return Site(self.name, self.x.tap(modules), self.h.tap(modules), query, self.n_heads, residual, self.is_block)


def found_at(site: Site, paths: Mapping[nn.Module, str]) -> Found:
    """The site without its model. paths: of its modules from the base model."""

    def place(tap: Tap) -> Place:
        return Place(paths[tap.module], tap.end, as_columns(tap.columns, tap.module), tap.width)

    query = None if site.query is None else place(site.query)
    return Found(site.name, place(site.x), place(site.h), query, site.n_heads, site.is_block)


def as_columns(columns: Tensor | slice | None, module: nn.Module) -> Columns:
    """In one way for the same columns: None for all, a slice for those in a row."""
    if columns is None:
        return None
    whole = weight_shape(module)[0]
    chosen = range(whole)[columns] if isinstance(columns, slice) else [int(one) for one in columns]
    if list(chosen) == list(range(whole)):
        return None
    if list(chosen) == list(range(chosen[0], chosen[-1] + 1)):
        return slice(chosen[0], chosen[-1] + 1)
    return tuple(chosen)


def _shown(columns: Columns) -> str:
    if columns is None:
        return ""
    if isinstance(columns, slice):
        return f"[{columns.start}:{columns.stop}]"
    runs: list[list[int]] = []
    for one in columns:
        if runs and one == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([one, one + 1])
    return "[" + ",".join(f"{start}:{stop}" for start, stop in runs) + "]"
