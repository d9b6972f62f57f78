"""CB: does the premise entail the hypothesis (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found

SOURCE = f"de Marneffe et al. 2019, CommitmentBank; in {_superglue.SOURCE}"
LABELS = {label: label for label in ("entailment", "contradiction", "neutral")}
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """input: "cb hypothesis: ... premise: ..."; label: entailment, contradiction or neutral."""
    return _superglue.rows(files, _superglue.fields("cb", "hypothesis", "premise"), LABELS)
