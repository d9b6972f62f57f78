"""WMT and any parallel text (STEM.en and STEM.ro, SGM pairs, .source and .target; or JSONL, one field a language)."""

from __future__ import annotations

from pathlib import Path

from tunescope.data.corpora import _parallel, _places
from tunescope.data.corpus_rows import Found

SOURCE = "Bojar et al. 2016, aclanthology.org/W16-2301; statmt.org/wmt16/translation-task.html"
METRICS = ("bleu", "chrf", "ter")
PARTS = {"dev": ("valid", "val", "validation", "newsdev*"), "test": ("newstest*",)}


def splits(folder: Path) -> dict[str, _places.Files]:
    """train, dev (valid, val, newsdev2016), test (newstest2016): of several that could be one, each keeps its name."""
    return _places.renamed({**_places.named(folder, {}), **_parallel.pairs(folder)}, PARTS)


def rows(files: _places.Files) -> Found:
    """input: the source, target: its translation, as the files have them: no tokenisation, no change of case."""
    return _parallel.rows(files)
