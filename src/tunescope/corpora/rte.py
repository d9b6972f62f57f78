"""RTE: does the premise entail the hypothesis (SuperGLUE's JSONL)."""

from __future__ import annotations

from tunescope.gathering import places, superglue
from tunescope.gathering.found import Found

SOURCE = f"Dagan et al. 2006 and later challenges; in {superglue.SOURCE}"
LABELS = {label: label for label in ("entailment", "not_entailment")}
splits = superglue.splits


def rows(files: places.Files) -> Found:
    """input: "rte hypothesis: ... premise: ..."; label: entailment or not_entailment."""
    return superglue.rows(files, superglue.fields("rte", "hypothesis", "premise"), LABELS)
