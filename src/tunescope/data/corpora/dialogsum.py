"""DialogSum: summaries of dialogues (JSONL with summary, or summary1 to summary3, or summaries)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.data.corpora import _places, _stored
from tunescope.data.corpus_rows import Found, left_out, row
from tunescope.data.read import of_any_length
from tunescope.data.row import place, value
from tunescope.errors import UserError

SOURCE = "Chen et al. 2021, arXiv:2105.06762; github.com/cylnlp/dialogsum; CC BY-NC-SA 4.0"
METRICS = ("rouge_2", "rouge_1", "rouge_l")
OFFICIAL = {part: (f"dialogsum.{part}.jsonl",) for part in ("train", "dev", "test")}


def splits(folder: Path) -> dict[str, _places.Files]:
    """The published parts; the hidden test has dialogues without summaries, and is no part."""
    found = _places.named(folder, OFFICIAL)
    return {part: files for part, files in found.items() if not part.startswith("dialogsum.hiddentest")}


def rows(files: _places.Files) -> Found:
    """input: the dialogue, its turns on lines of their own; target: a summary, a row for each.

    Topics and ids are not kept.

    Raises:
        UserError: a row has no dialogue or no summary.
    """
    found, empty = [], 0
    for index, source in enumerate(of_any_length(files[0])):
        dialogue = value(source, "dialogue", index)
        for summary in _summaries(source, index):
            if summary.strip() and dialogue.strip():
                found.append(row({"input": dialogue, "target": summary.strip()}, source))
            else:
                empty += 1
    return Found(found, left_out(empty, "pairs with an empty dialogue or summary"))


def _summaries(source: Mapping[str, Any], index: int) -> list[str]:
    several = source.get("summaries")
    if _stored.is_texts(several) and several:
        return list(several)
    names = sorted(name for name in source if re.fullmatch(r"summary\d*", name))
    if not names:
        raise UserError(f"{place(source, index)} has no summary, summary1 or summaries. It has: {', '.join(source)}.")
    return [value(source, name, index) for name in names]
