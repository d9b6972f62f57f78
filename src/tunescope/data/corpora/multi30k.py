"""Multi30k, task 1: English captions to German (train.en and train.de, each also with .gz; or JSONL with en and de)."""

from __future__ import annotations

from pathlib import Path

from tunescope.data.corpora import _parallel, _places
from tunescope.data.corpus_rows import Found

SOURCE = "Elliott et al. 2016, arXiv:1605.00459; github.com/multi30k/dataset, data/task1"
METRICS = ("bleu", "chrf", "ter")
SIDES = ("en", "de")
PARTS = {
    "train": ("train.*",),  # tokenised: train.lc.norm.tok.en
    "dev": ("val", "validation", "val.*"),
    "test": ("test_2016_flickr", "test_2016_flickr.*", "test2016", "test_2016"),
}


def splits(folder: Path) -> dict[str, _places.Files]:
    """train; val as dev; test: that of 2016 (Flickr), beside which test_2017_flickr and the others keep their names."""
    return _places.renamed({**_places.named(folder, {}), **_parallel.pairs(folder, SIDES)}, PARTS)


def rows(files: _places.Files) -> Found:
    """input: English, target: German, as the files have them: raw, or tokenised and in lower case, as you choose."""
    return _parallel.rows(files, SIDES)
