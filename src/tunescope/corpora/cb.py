"""CB: does the premise entail the hypothesis (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.gathering import places, superglue
from tunescope.gathering.found import Found

SOURCE = f"de Marneffe et al. 2019, CommitmentBank; in {superglue.SOURCE}"
LABELS = {label: label for label in ("entailment", "contradiction", "neutral")}
splits = superglue.splits


def rows(files: places.Files) -> Found:
    """input: "cb hypothesis: ... premise: ..."; label: entailment, contradiction or neutral."""
    return superglue.rows(files, superglue.fields("cb", "hypothesis", "premise"), LABELS)
