"""COPA: which of two is the cause or effect of the premise (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.gathering import places, superglue
from tunescope.gathering.found import Found

SOURCE = f"Roemmele et al. 2011, Choice of Plausible Alternatives; in {superglue.SOURCE}"
LABELS = {"0": "choice1", "1": "choice2"}
splits = superglue.splits


def rows(files: places.Files) -> Found:
    """input: "copa choice1: ... choice2: ... premise: ... question: cause"; label: choice1 or choice2."""
    return superglue.rows(files, superglue.fields("copa", "choice1", "choice2", "premise", "question"), LABELS)
