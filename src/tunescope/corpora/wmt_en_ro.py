"""WMT16 from English to Romanian, scored and trained as published; files as of `wmt`, of these languages alone."""

from __future__ import annotations

from pathlib import Path

from tunescope.corpora import wmt
from tunescope.gathering import parallel, places
from tunescope.gathering.found import Found

SOURCE = "Bojar et al. 2016, aclanthology.org/W16-2301; scored as in Sennrich et al. 2016, arXiv:1606.02891"
METRICS = ("bleu_romanian", "bleu", "chrf")
SIDES = ("en", "ro")


def splits(folder: Path) -> dict[str, places.Files]:
    """train, dev and test, as of `wmt`; pairs of other languages and of the other direction are none of them."""
    pairs = parallel.pairs(folder)
    own = {stem: files for stem, files in pairs.items() if parallel.languages(files) in (SIDES, ("source", "target"))}
    return places.renamed({**places.named(folder, {}), **own}, wmt.PARTS)


def rows(files: places.Files) -> Found:
    """input: English, target: Romanian, as the files have them."""
    return parallel.rows(files, SIDES)
