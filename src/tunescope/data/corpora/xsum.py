"""XSum: a BBC article to one sentence (JSONL; or the list of ids with its articles; or .source and .target)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.data.corpora import _parallel, _places
from tunescope.data.corpus_rows import Found, left_out, row, short
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, value
from tunescope.data.rows_of_file import text_of
from tunescope.errors import UserError

SOURCE = "Narayan et al. 2018, arXiv:1808.08745; github.com/EdinburghNLP/XSum; the articles are the BBC's"
METRICS = ("rouge_2", "rouge_1", "rouge_l")
LENGTHS = {"min_new_tokens": 11, "max_new_tokens": 62}  # Lewis et al. 2020's, and all who follow them
IDS = "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json"
PARTS = {"dev": ("val", "valid", "validation")}
SECTION = re.compile(r"\[SN\]([A-Z-]+)\[SN\]")
CLUTTER = {
    "Share this with",
    "Email",
    "Facebook",
    "Messenger",
    "Twitter",
    "Pinterest",
    "WhatsApp",
    "Linkedin",
    "LinkedIn",
}
CLUTTER |= {"Copy this link", "These are external links and will open in a new window"}


def splits(folder: Path) -> dict[str, _places.Files]:
    """By the list of ids where it is there; else train.source and train.target, or JSONL."""
    if (folder / IDS).is_file():
        return _by_ids(folder)
    return _places.renamed({**_places.named(folder, {}), **_parallel.pairs(folder, ("source", "target"))}, PARTS)


def rows(files: _places.Files) -> Found:
    """input: the article, target: its first sentence, which the authors took out of it.

    The articles of ID.summary have lines of the page around them ("Share this with", "Twitter"), which go, as in the
    copy that Hugging Face serves. Ids are not kept: a row knows its file.
    """
    if files[0].name.removesuffix(".gz").endswith((".source", ".target")):
        return _parallel.rows(files)
    if files[0].suffix in (".summary", ".document"):
        found = [_article(path) for path in files if path.suffix == ".document" or path.parent.name != "summary"]
    else:
        found = [_copied(source, index) for index, source in enumerate(of_any_length(files[0]))]
    kept = [one for one in found if one["input"].strip() and one["target"].strip()]
    return Found(kept, left_out(len(found) - len(kept), "articles with no text or no summary"))


def _by_ids(folder: Path) -> dict[str, _places.Files]:
    """Each part's articles, in the order of the list: bbc-summary-data/ID.summary, or document/ID.document with its
    summary/ID.summary. Raises UserError where an article of the list is not there."""
    lists = _lists(folder / IDS)
    whole = folder / "bbc-summary-data"
    halves = [(folder / name, f".{name}") for name in ("document", "summary")]
    wanted = [(whole, ".summary")] if whole.is_dir() else halves
    there = {place: set(os.listdir(place)) if place.is_dir() else set() for place, _ in wanted}
    parts = {}
    for name, ids in lists.items():
        missing = [one for one in ids if any(one + ending not in there[place] for place, ending in wanted)]
        if missing:
            raise UserError(
                f"{folder}: of {len(ids):,} {name} articles in {IDS}, {len(missing):,} are not there, such as "
                f"{missing[0]}. They are looked for in bbc-summary-data, or in document and summary."
            )
        parts[name] = tuple(place / f"{one}{ending}" for one in ids for place, ending in wanted)
    return _places.renamed(parts, PARTS)


def _lists(path: Path) -> dict[str, list[str]]:
    """Part -> ids."""
    try:
        found: object = json.loads(text_of(path))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(map(_are_ids, found.values())):
        raise UserError(f"{path} is no list of ids for each part. Take the file anew.")
    return found


def _are_ids(given: object) -> bool:
    return isinstance(given, list) and given != [] and all(isinstance(one, str) and one.isalnum() for one in given)


def _article(path: Path) -> Row:
    """Of one file with sections [SN]FIRST-SENTENCE[SN] and [SN]RESTBODY[SN], or of an article with its summary's."""
    if path.suffix == ".document":
        beside = path.parent.parent / "summary" / f"{path.stem}.summary"
        return Row({"input": _or_nothing(path), "target": _or_nothing(beside)}, short(path), 1)
    text = text_of(path)
    lines = [line for line in text.splitlines() if line.strip() and line.strip() not in CLUTTER]
    pieces = SECTION.split("\n".join(lines))
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    if not {"FIRST-SENTENCE", "RESTBODY"} <= set(sections):
        raise UserError(f"{path} has no [SN]FIRST-SENTENCE[SN] and [SN]RESTBODY[SN]. Take the file anew.")
    made = {"input": sections["RESTBODY"].strip(), "target": sections["FIRST-SENTENCE"].strip()}
    return Row(made, short(path), 1)


def _or_nothing(path: Path) -> str:
    """A file's text; "" of a blank one, such as some articles are, which `rows` counts."""
    is_blank = path.is_file() and not path.read_bytes().strip()
    return "" if is_blank else text_of(path).strip()


def _copied(source: Mapping[str, Any], index: int) -> Row:
    return row({"input": value(source, "document", index), "target": value(source, "summary", index)}, source)
