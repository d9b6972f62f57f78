"""Two texts, line by line: plain files STEM.en and STEM.de, WMT's SGM pairs, and JSONL with a field for each side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

from tunescope.data.corpora._places import Files, one
from tunescope.data.corpus_rows import Found, left_out, row
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, place
from tunescope.data.rows_of_file import FORMATS, text_of
from tunescope.errors import UserError

PLAIN = re.compile(r"(?P<stem>.+)\.(?P<side>source|target|[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?)")
SGM = re.compile(r"(?P<stem>.+)-(?P<role>src|ref)\.(?P<side>[a-z]{2,3})\.sgm")
NO_LANGUAGES = {"md", "txt", "sh", "py", "tar", "tgz", "zip", "csv", "tsv", "xml", "sgm", "yml", "log", "pdf", "bz2"}
SEGMENT = re.compile(
    r"<doc\b[^>]*\bdocid=\"(?P<doc>[^\"]*)\"|<seg\b[^>]*\bid=\"(?P<seg>[^\"]*)\"[^>]*>(?P<text>.*?)</seg>", re.I | re.S
)
ENTITIES = {"&quot;": '"', "&apos;": "'"}


def pairs(folder: Path, sides: Sequence[str] = ()) -> dict[str, Files]:
    """Stem -> its two files, the source first: SGM says which it is; of two languages it is English, of two others the
    first in the order of the alphabet.

    sides: the two languages, source first, where a folder may have more.

    Raises:
        UserError: a stem has more than two languages, and none were said.
    """
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        written = _written(path)
        if written is None or written["side"] in NO_LANGUAGES or not path.is_file():
            continue
        side = written.groupdict().get("role") or written["side"]
        if not sides or side in sides:
            known = found.setdefault(written["stem"], {})
            known[side] = one([known[side], path] if side in known else [path], f"{written['stem']} in {side}")
    crowded = next((stem for stem, known in found.items() if len(known) > 2), None)
    if crowded is not None:
        raise UserError(
            f"{folder} has {crowded} in {', '.join(found[crowded])}, and a pair is two. Put the two that you mean "
            "into a folder of their own."
        )
    return {stem: _ordered(known, sides) for stem, known in found.items() if len(known) == 2}


def rows(files: Files, sides: Sequence[str] = ()) -> Found:
    """input and target, and both again by their languages, for the other direction: `--input-field ro`.

    A pair with nothing on one side or both is left out and counted.

    Raises:
        UserError: the files differ in their number of lines, or a file is of none of the forms.
    """
    if len(files) == 1:
        found, names = _copied(files[0], sides)
    else:
        found, names = _aligned(files)
    kept = [one for one in found if one["input"].strip() and one["target"].strip()]
    told = () if names == ("source", "target") else (f"input is {names[0]}, target is {names[1]}",)
    return Found(kept, (*told, *left_out(len(found) - len(kept), "pairs with an empty side")))


def languages(files: Files) -> tuple[str, str]:
    """Of a pair of files, the source's first; "source" and "target" where they do not say."""
    return _side(files[0]), _side(files[1])


def _ordered(known: Mapping[str, Path], sides: Sequence[str]) -> Files:
    names = sides or _direction(list(known))
    return tuple(known[name] for name in names)


def _direction(names: Sequence[str]) -> tuple[str, str]:
    first, second = sorted(names, key=lambda name: (name not in ("en", "src", "source"), name))
    return first, second


def _aligned(files: Files) -> tuple[list[Row], tuple[str, str]]:
    names = languages(files)
    read_one = _segments if ".sgm" in files[0].suffixes else _lines
    source, target = read_one(files[0]), read_one(files[1])
    if [key for key, *_ in source] != [key for key, *_ in target]:
        raise UserError(
            f"{files[0]} has {len(source):,} lines and {files[1]} has {len(target):,}, or they are not the same ones. "
            "A pair must stand line by line. Take both anew."
        )
    sides = [(line, one, other) for (_, line, one), (_, _, other) in zip(source, target, strict=True)]
    return [Row(_row(names, (one, other)), files[0].name, line) for line, one, other in sides], names


def _row(names: tuple[str, str], texts: tuple[str, str]) -> dict[str, str]:
    plain = {"input": texts[0].strip(), "target": texts[1].strip()}
    return plain if names == ("source", "target") else plain | {names[0]: plain["input"], names[1]: plain["target"]}


def _side(path: Path) -> str:
    written = _written(path)
    return written["side"] if written else path.name


def _written(path: Path) -> re.Match[str] | None:
    name = path.name.removesuffix(".gz")
    return SGM.fullmatch(name) or PLAIN.fullmatch(name)


def _lines(path: Path) -> list[tuple[object, int, str]]:
    lines = text_of(path).split("\n")
    return [(n, n, line) for n, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1)]


def _segments(path: Path) -> list[tuple[object, int, str]]:
    """((document, segment), line, text) of each segment, with XML's five entities read."""
    text, doc, found = text_of(path), "", []
    for piece in SEGMENT.finditer(text):
        if piece["seg"] is None:
            doc = piece["doc"]
        else:
            found.append(((doc, piece["seg"]), piece.start(), unescape(piece["text"], ENTITIES)))
    return [(key, text.count("\n", 0, at) + 1, segment) for key, at, segment in found]


def _copied(path: Path, sides: Sequence[str]) -> tuple[list[Row], tuple[str, str]]:
    if path.name.removesuffix(".gz").endswith(FORMATS):
        found = of_any_length(path)
    else:
        raise UserError(
            f"{path} is one side of a pair. Give its folder and its name without the language: FOLDER#NAME."
        )
    names: tuple[str, str] = ("", "")
    made = []
    for index, source in enumerate(found):
        known = _languages(source, index, sides)
        names = (sides[0], sides[1]) if sides else _direction(list(known))
        lacking = next((name for name in names if name not in known), None)
        if lacking is not None:
            raise UserError(f"{place(source, index)} has no text in {lacking}. It has: {', '.join(known)}.")
        made.append(row(_row(names, (known[names[0]], known[names[1]])), source))
    return made, names


def _languages(source: Mapping[str, Any], index: int, sides: Sequence[str]) -> dict[str, str]:
    """{"en": ..., "ro": ...} of a row, or of its field "translation"; of more texts the two sides, where these are."""
    given = source.get("translation", source)
    texts = {name: text for name, text in given.items() if isinstance(text, str)} if isinstance(given, Mapping) else {}
    if sides and all(side in texts for side in sides):
        texts = {side: texts[side] for side in sides}
    if len(texts) != 2:
        raise UserError(
            f"{place(source, index)} must have two texts, one a language, as en and ro, or 'translation' with them. "
            f"It has: {', '.join(source)}."
        )
    return texts
