"""The shortest names for a given set of sites."""

from __future__ import annotations

from collections.abc import Iterable


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


def _short(name: str) -> str:
    return name.split(".", 2)[2]
