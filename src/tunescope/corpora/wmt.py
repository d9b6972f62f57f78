"""WMT and any parallel text (STEM.en and STEM.ro, SGM pairs, .source and .target; or JSONL, one field a language)."""

from __future__ import annotations

from pathlib import Path

from tunescope.gathering import parallel, places
from tunescope.gathering.found import Found

SOURCE = "Bojar et al. 2016, aclanthology.org/W16-2301; statmt.org/wmt16/translation-task.html"
METRICS = ("bleu", "chrf", "ter")
PARTS = {"dev": ("valid", "val", "validation", "newsdev*"), "test": ("newstest*",)}


def splits(folder: Path) -> dict[str, places.Files]:
    """train, dev (valid, val, newsdev2016), test (newstest2016): of several that could be one, each keeps its name."""
    return places.renamed({**places.named(folder, {}), **parallel.pairs(folder)}, PARTS)


def rows(files: places.Files) -> Found:
    """input: the source, target: its translation, as the files have them: no tokenisation, no change of case."""
    return parallel.rows(files)
