"""E2E NLG: restaurant slots to text (CSV with mr and ref; or JSONL with table and text)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found, left_out, row
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, place, value
from tunescope.errors import UserError

SOURCE = "Novikova et al. 2017, arXiv:1706.09254; github.com/tuetschek/e2e-dataset; CC BY-SA 4.0"
METRICS = ("bleu", "nist", "meteor", "rouge_l_coco", "cider")  # of the challenge, whose script ignores case
LOWERCASE = True
OFFICIAL = {"train": ("trainset.csv",), "dev": ("devset.csv",), "test": ("testset_w_refs.csv",)}
NAMES = {"eatType": "Type", "priceRange": "price", "familyFriendly": "family friendly"}
SLOT = re.compile(r"([^\[\],]+)\[([^\]]*)\]")


def splits(folder: Path) -> dict[str, _places.Files]:
    return _places.named(folder, OFFICIAL)


def rows(files: _places.Files) -> Found:
    """input: the slots as Li & Liang (2021) write them, "name : Alimentum | area : city centre".

    target: of the published CSV the reference as it is, which is what the official script scores. Of a JSONL copy its
    `text`, which is tokenised, in every part: the training rows have no other. Where the copy also has `text_raw`, it
    comes out as `raw`, for `--target-field raw`.

    Raises:
        UserError: a field is missing, or an mr is not "slot[value], slot[value]".
    """
    found: list[Row] = []
    notes: tuple[str, ...] = ()
    for index, source in enumerate(of_any_length(files[0])):
        if "table" in source:
            notes = ("target is the tokenised text; the official script scores on the raw one",)
            found.append(row(_copied(source, index), source))
        else:
            mr = value(source, "mr", index)
            slots = linear(mr, place(source, index))
            found.append(row({"input": slots, "target": value(source, "ref", index), "mr": mr}, source))
    kept = [each for each in found if each["target"].strip()]
    return Found(kept, (*notes, *left_out(len(found) - len(kept), "rows with an empty reference")))


def linear(mr: str, where: str) -> str:
    """ "name[X], eatType[pub], priceRange[£20-25]" -> "name : X | Type : pub | price : £ 20 - 25"."""
    slots = [(name.strip(), text) for name, text in SLOT.findall(mr)]
    if not slots or re.sub(r"[\s,]", "", SLOT.sub("", mr)):
        raise UserError(f"{where}: mr reads {mr!r}, which is not 'slot[value], slot[value]'. Mend the row.")
    return " | ".join(
        f"{NAMES.get(name, name)} : {_spaced(text) if name == 'priceRange' else text}" for name, text in slots
    )


def _spaced(price: str) -> str:
    return re.sub(r"(\d)-(\d)", r"\1 - \2", re.sub(r"£(\d)", r"£ \1", price))


def _copied(source: Mapping[str, Any], index: int) -> dict[str, Any]:
    raw = {"raw": source["text_raw"]} if "text_raw" in source else {}
    return {"input": value(source, "table", index), "target": value(source, "text", index), **raw}
