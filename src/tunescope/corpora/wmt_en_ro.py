"""WMT16 from English to Romanian, scored and trained as published; files as those of `wmt`."""

from __future__ import annotations

from pathlib import Path

from tunescope.corpora import wmt
from tunescope.gathering import parallel
from tunescope.gathering.found import Found
from tunescope.gathering.places import Files

SOURCE = "Bojar et al. 2016, aclanthology.org/W16-2301; scored as in Sennrich et al. 2016, arXiv:1606.02891"
METRICS = ("bleu_romanian", "bleu", "chrf")
SIDES = ("en", "ro")


def splits(folder: Path) -> dict[str, Files]:
    """train, dev and test, as of `wmt`."""
    return wmt.splits(folder)


def rows(files: Files) -> Found:
    """input: English, target: Romanian, as the files have them."""
    return parallel.rows(files, SIDES)
