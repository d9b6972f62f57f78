"""Words for labels as they are typed: LABEL=WORD,LABEL=WORD, where a backslash makes "," or "=" a part of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from tunescope.errors import UserError
from tunescope.system import escapes

SIGNS = ",="


def pairs(name: str, items: Iterable[str]) -> dict[str, str]:
    """Label -> word, of what was typed for the option of that name.

    Raises:
        UserError: an item is no LABEL=WORD, or a label has two words.
    """
    found: dict[str, str] = {}
    for item in (item for text in items for item in escapes.cut(text, ",", SIGNS)):
        first, *rest = escapes.cut(item, "=", SIGNS)
        label, word = (escapes.plain(one, SIGNS).strip() for one in (first, "=".join(rest)))
        if not (label and word):
            raise UserError(
                f"{name} has {item!r}; give LABEL=WORD for each label, as in {name} neg=bad,pos=great, and a backslash "
                f"before a comma of either, or a = of a label"
            )
        if label in found:
            raise UserError(f"{name} has the label {label!r} twice, {found[label]!r} and {word!r}; give it once.")
        found[label] = word
    return found


def pair(label: str, word: str) -> str:
    """ "LABEL=WORD", as it is typed but for the shell's quotes."""
    return f"{escapes.written(label, SIGNS)}={escapes.written(word, ',')}"


def typed(words: Mapping[str, str] | Iterable[str], name: str = "--words", more: bool = False) -> str:
    """The option as a shell takes it; of labels alone with WORD for each. more: whether there are others."""
    given = words if isinstance(words, Mapping) else dict.fromkeys(words, "WORD")
    text = ",".join([*(pair(label, word) for label, word in given.items()), *(["..."] if more else [])])
    return f"{name}{'=' if text.startswith('-') else ' '}{shlex.quote(text)}"
