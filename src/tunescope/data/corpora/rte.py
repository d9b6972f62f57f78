"""RTE: does the premise entail the hypothesis (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found

SOURCE = f"Dagan et al. 2006 and later challenges; in {_superglue.SOURCE}"
LABELS = {label: label for label in ("entailment", "not_entailment")}
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """input: "rte hypothesis: ... premise: ..."; premise and hypothesis; label: entailment or not_entailment."""
    return _superglue.rows(files, _superglue.fields("rte", "hypothesis", "premise"), LABELS)
