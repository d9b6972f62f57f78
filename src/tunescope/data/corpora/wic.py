"""WiC: does the word mean the same in both sentences (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found

SOURCE = f"Pilehvar and Camacho-Collados 2019, arXiv:1808.09121; in {_superglue.SOURCE}"
LABELS = _superglue.TRUTH
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """input: "wic sentence1: ... sentence2: ... word: ..."; label: True or False."""
    return _superglue.rows(files, _superglue.fields("wic", "sentence1", "sentence2", "word"), LABELS)
