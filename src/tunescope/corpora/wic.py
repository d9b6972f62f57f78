"""WiC: does the word mean the same in both sentences (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.gathering import places, superglue
from tunescope.gathering.found import Found

SOURCE = f"Pilehvar and Camacho-Collados 2019, arXiv:1808.09121; in {superglue.SOURCE}"
LABELS = superglue.TRUTH
splits = superglue.splits


def rows(files: places.Files) -> Found:
    """input: "wic sentence1: ... sentence2: ... word: ..."; label: True or False."""
    return superglue.rows(files, superglue.fields("wic", "sentence1", "sentence2", "word"), LABELS)
