"""Blank lines in targets: an answer in words ends at one, unless those that are learned hold some themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunescope.tasks.answers.extract import BLANK_LINE


def holding(targets: Sequence[str]) -> int:
    """How many hold a blank line within them."""
    return sum(BLANK_LINE.search(text.strip()) is not None for text in targets)


def notes(targets: Mapping[str, Sequence[str]]) -> list[str]:
    """What is told of the targets of each part: that answers do not end at one, or that some are cut at one."""
    learned = holding(targets["train"])
    if learned:
        return [
            f"{learned:,} of {len(targets['train']):,} training targets hold a blank line, so an answer does not end "
            "at one: behind demonstrations a model may write on."
        ]
    return [
        f"{count:,} of {len(some):,} {part} targets hold a blank line and no training target does, so an answer ends "
        "at one: what stands behind it there cannot be written."
        for part, some in targets.items()
        if (count := holding(some))
    ]
