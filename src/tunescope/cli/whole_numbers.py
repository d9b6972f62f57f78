"""Whole numbers as they are typed: a fraction is refused, where the parser would round it."""

from collections.abc import Sequence
from typing import Any, get_args

from cyclopts import CoercionError, Token, convert


def exactly(kind: Any, tokens: Sequence[Token]) -> Any:
    """What the parser makes of the words for an option of this type.

    Raises:
        CoercionError: a whole number is asked for, and one of the words is another number.
    """
    for token in tokens if _whole(kind) else ():
        if not _number(token.value).is_integer():
            raise CoercionError(msg=f"{token.value} is not a whole number.", token=token)
    return convert(kind, tokens)


def _whole(kind: Any) -> bool:
    return kind is int or any(map(_whole, get_args(kind)))


def _number(word: str) -> float:
    """0 where it is none: the parser tells that in its own words."""
    try:
        return float(word)
    except ValueError:
        return 0.0
