"""The searches that recipes hold against one another, with all their settings written down."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tunescope.search.search import Search

METHODS = {
    "random": "random prompts, the best kept",
    "autoprompt:mode=projected": "projected gradient steps (AutoPrompt-SGD)",
    "fluentprompt": "projected Langevin steps (FluentPrompt)",
    "pez": "PEZ",
    "autoprompt:mode=swap": "gradient-guided swaps (AutoPrompt)",
    "gcg": "greedy coordinate gradient (GCG)",
}


def resolved(methods: Sequence[str], **given: int) -> dict[str, dict[str, Any]]:
    """Method -> every field of it, those given and its own defaults, as a recipe keeps them."""
    from tunescope.search.names import parse

    searches: dict[str, Any] = {method: parse(method) for method in methods}
    return {method: asdict(replace(search, **given)) for method, search in searches.items()}


def built(method: str, kept: Mapping[str, Mapping[str, Any]]) -> Search:
    """The search with the fields that were kept for it."""
    from tunescope.search.names import parse

    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in kept[method].items()}
    made: Search = replace(parse(method), **fields)  # type: ignore[type-var]
    return made
