"""Searches by name: a file in `search/` is a search; its file name is its name on the command line."""

from __future__ import annotations

import importlib
from functools import cache

from tunescope.errors import UserError
from tunescope.methods import typed
from tunescope.search import methods
from tunescope.search.search import Search
from tunescope.system import plugins


def searches() -> dict[str, type[Search]]:
    """Every search by its name."""
    return {name: find(name) for name in plugins.names(methods)}


@cache
def find(name: str) -> type[Search]:
    """The one public search of a file."""
    module = importlib.import_module(f"tunescope.search.methods.{name}")
    own = [
        value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Search)
        and value.__module__ == module.__name__
        and key[0] != "_"
    ]
    if len(own) != 1:
        raise RuntimeError(f"{module.__name__} has {len(own)} public searches; a file is one search.")
    return own[0]


def parse(text: str) -> Search:
    """ "pez:length=10,rate=0.1" -> the search, as its constructor gives it. Raises UserError for what is not known."""
    found: Search = typed.built(text, searches(), "--method", "search")
    return found


def show(found: Search) -> str:
    """`parse(show(found)) == found`. Fields at their defaults are left out."""
    return typed.shown(found, lambda text: parse(text) == found)


def listed(texts: tuple[str, ...]) -> list[Search]:
    """The searches typed, each once.

    Raises:
        UserError: none, one twice, or one that is not known.
    """
    if not texts:
        raise UserError(
            f"--method needs a search, such as pez:length=10. Searches: {', '.join(plugins.names(methods))}."
        )
    found = [parse(text) for text in texts]
    twice = next((one for index, one in enumerate(found) if one in found[:index]), None)
    if twice is not None:
        raise UserError(f"--method has {show(twice)!r} twice; drop one.")
    return found
