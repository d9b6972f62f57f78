"""BoolQ: does the passage say yes to the question (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found

SOURCE = f"Clark et al. 2019, arXiv:1905.10044; in {_superglue.SOURCE}"
LABELS = _superglue.TRUTH
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """input: "boolq passage: ... question: ..."; label: True or False."""
    return _superglue.rows(files, _superglue.fields("boolq", "passage", "question"), LABELS)
