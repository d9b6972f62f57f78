"""BoolQ: does the passage say yes to the question (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.gathering import places, superglue
from tunescope.gathering.found import Found

SOURCE = f"Clark et al. 2019, arXiv:1905.10044; in {superglue.SOURCE}"
LABELS = superglue.TRUTH
splits = superglue.splits


def rows(files: places.Files) -> Found:
    """input: "boolq passage: ... question: ..."; label: True or False."""
    return superglue.rows(files, superglue.fields("boolq", "passage", "question"), LABELS)
