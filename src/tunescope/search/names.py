"""Searches by name: a file in `methods/` is a search; its file name is its name on the command line."""

from __future__ import annotations

from functools import cache

from tunescope.errors import UserError
from tunescope.methods import text_form
from tunescope.search.search import Search
from tunescope.system import plugins

FOLDER = "search.methods"


def searches() -> dict[str, type[Search]]:
    """Every search by its name."""
    return {name: find(name) for name in plugins.names(FOLDER)}


@cache
def find(name: str) -> type[Search]:
    """The one public search of a file."""
    found: type[Search] = plugins.only_class(plugins.load(FOLDER, name), Search)  # type: ignore[type-abstract]
    return found


def parse(text: str) -> Search:
    """ "pez:length=10,rate=0.1" -> the search, as its constructor gives it. Raises UserError for what is not known."""
    found: Search = text_form.built(text, searches(), "--method", "search")
    return found


def show(found: Search) -> str:
    """`parse(show(found)) == found`. Fields at their defaults are left out."""
    return text_form.shown(found, lambda text: parse(text) == found)


def listed(texts: tuple[str, ...]) -> list[Search]:
    """The searches typed, each once.

    Raises:
        UserError: none, one twice, or one that is not known.
    """
    if not texts:
        raise UserError(
            f"--method needs a search, such as pez:length=10. Searches: {', '.join(plugins.names(FOLDER))}."
        )
    found = [parse(text) for text in texts]
    twice = next((one for index, one in enumerate(found) if one in found[:index]), None)
    if twice is not None:
        raise UserError(f"--method has {show(twice)!r} twice; drop one.")
    return found
