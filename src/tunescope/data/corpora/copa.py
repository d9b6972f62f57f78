"""COPA: which of two is the cause or effect of the premise (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found

SOURCE = f"Roemmele et al. 2011, Choice of Plausible Alternatives; in {_superglue.SOURCE}"
LABELS = {"0": "choice1", "1": "choice2"}
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """input: "copa choice1: ... choice2: ... premise: ... question: cause"; label: choice1 or choice2."""
    return _superglue.rows(files, _superglue.fields("copa", "choice1", "choice2", "premise", "question"), LABELS)
