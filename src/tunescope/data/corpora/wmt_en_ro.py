"""WMT16 from English to Romanian, scored and trained as published; files as of `wmt`, of these languages alone."""

from __future__ import annotations

from pathlib import Path

from tunescope.data.corpora import _parallel, _places, wmt
from tunescope.data.corpus_rows import Found

SOURCE = "Bojar et al. 2016, aclanthology.org/W16-2301; scored as in Sennrich et al. 2016, arXiv:1606.02891"
METRICS = ("bleu_romanian", "bleu", "chrf")
SIDES = ("en", "ro")


def splits(folder: Path) -> dict[str, _places.Files]:
    """train, dev and test, as of `wmt`; pairs of other languages and of the other direction are none of them."""
    asked = (("source", "target"), ("src", "ref"), SIDES)  # of a stem in other languages too, these
    pairs = {stem: files for sides in asked for stem, files in _parallel.pairs(folder, sides).items()}
    own = {stem: files for stem, files in pairs.items() if _parallel.languages(files) in (SIDES, ("source", "target"))}
    return _places.renamed({**_places.named(folder, {}), **own}, wmt.PARTS)


def rows(files: _places.Files) -> Found:
    """input: English, target: Romanian, as the files have them."""
    return _parallel.rows(files, SIDES)
