"""The shortest names for a given set of sites, to type and to read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import prod


def selectors(known: Iterable[str], chosen: Iterable[str]) -> tuple[str, ...]:
    """Selectors that name the chosen sites and no others: "self.q" for every layer's, "decoder.3.self.q" for one's.

    known: all sites of the model. chosen: some of them, or linear maps by their paths.
    """
    known, chosen = list(known), list(chosen)
    wanted = set(chosen)
    found: list[str] = []
    for short in dict.fromkeys(_short(name) for name in known if name in wanted):
        alike = [name for name in known if _short(name) == short]
        if wanted.issuperset(alike):
            found.append(short)
            continue
        for stack in dict.fromkeys(name.split(".", 1)[0] for name in alike):
            part = [name for name in alike if name.startswith(f"{stack}.")]
            whole = wanted.issuperset(part)
            found += [f"{stack}.{short}"] if whole else [name for name in part if name in wanted]
    return tuple(found) + tuple(f"path:{name}" for name in chosen if name not in set(known))


def ranges(names: Iterable[str]) -> str:
    """Names that differ in numbers, of layers or tokens, as a person reads them: "decoder 0-29: self.q, self.v".

    Those that have the same numbers stand together; where the numbers of several places are no block, each alone.
    """
    numbers: dict[str, list[tuple[int, ...]]] = {}
    for name in dict.fromkeys(names):
        numbers.setdefault(re.sub(r"(?<=\.)\d+(?=\.)", "{}", name), []).append(
            tuple(map(int, re.findall(r"(?<=\.)(\d+)(?=\.)", name)))
        )
    shown: dict[str, list[str]] = {}
    for form, found in numbers.items():
        axes = [sorted(set(axis)) for axis in zip(*found, strict=True)]
        is_block = len(found) == prod(map(len, axes))
        for one in [[_runs(axis) for axis in axes]] if is_block else [[str(n) for n in each] for each in found]:
            head, _, tail = form.partition(".{}.")
            shown.setdefault(f"{head} {one[0]}" if one else "", []).append(tail.format(*one[1:]) if one else form)
    return "; ".join(f"{where}: {', '.join(what)}" if where else ", ".join(what) for where, what in shown.items())


def _runs(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 -> "0-2,5"."""
    groups = (list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]))
    ends = ([number for _, number in run] for run in groups)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def _short(name: str) -> str:
    return name.split(".", 2)[2]
