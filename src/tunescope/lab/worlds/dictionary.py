"""Dictionary worlds: an English word spelled in, its German or Spanish translation spelled out.

After the translation experiment of Petrov et al. 2024 (arXiv:2310.19698, appendix), whose word pairs, tokenisation and
sizes are not known; these are ours. One symbol a letter, a to z, and one for the end, with which both words are filled
up. The three languages share the letters, so pretraining on German trains every row of the output layer that Spanish
needs; with one token a word the Spanish rows would be as they were drawn, and a prefix would fail for that alone.
Nothing is held out: no translation can be told from the others. Whole words right is a measure of what was stored.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.lab.worlds.lessons import Lesson
from tunescope.lab.worlds.world_cache import cache
from tunescope.system import files, run_folder

Language = Literal["de", "es"]
Words = tuple[str, str, str]  # English, German, Spanish
COLUMNS = ("en", "de", "es")
SYMBOLS = 27  # the end, then a to z
FEWEST = 20  # words that a file must have
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
MOST_DRAWN = 100_000


@dataclass(frozen=True)
class Dictionary:
    """Rows of English, German, Spanish, each word of at most `length` letters from a to z."""

    words: tuple[Words, ...]
    length: int = 8

    @property
    def digest(self) -> str:
        """16 hex digits: equal for equal words in equal order."""
        return run_folder.identity(asdict(self))


def read(path: Path, most: int, length: int = 8) -> Dictionary:
    """The first `most` usable rows of a file with tab-separated columns en, de, es, plain or gzipped.

    Usable: every word a to z alone and no longer than `length`, German and Spanish different, an English word not yet
    seen; and, where the file has columns n_de and n_es, one translation in each language.

    Raises:
        UserError: no such file, not text, a column missing, or fewer than 20 usable rows.
    """
    found: dict[str, Words] = {}
    for row in _rows(path):
        words = (row["en"] or "", row["de"] or "", row["es"] or "")  # None in a row cut short
        if _usable(words, length) and row.get("n_de", "1") == row.get("n_es", "1") == "1":
            found.setdefault(words[0], words)
    if len(found) < FEWEST:
        raise UserError(
            f"--data {path}: {len(found)} usable rows; a dictionary needs {FEWEST}. Usable: en, de and es of at most "
            f"{length} letters from a to z, de and es different, n_de and n_es 1 where there are such columns."
        )
    return Dictionary(tuple(found.values())[:most], length)


def synthetic(count: int, length: int = 8, seed: int = 0) -> Dictionary:
    """Words of two or three drawn syllables, one-to-one between three invented languages: a stand-in for real ones.

    Nothing in a word tells its translation, where real languages have cognates.
    """
    if length < 6 or not 1 <= count <= MOST_DRAWN:
        raise UserError(
            f"A synthetic dictionary has 1 to {MOST_DRAWN:,} words of 6 letters or more; asked: {count} of {length}."
        )
    generator = np.random.default_rng(seed)
    english, german, spanish = (_drawn(count, generator) for _ in COLUMNS)
    while any(one == other for one, other in zip(german, spanish, strict=True)):
        spanish = spanish[1:] + spanish[:1]
    return Dictionary(tuple(zip(english, german, spanish, strict=True)), length)


def ids(dictionary: Dictionary, language: Language) -> Tensor:
    """(words, 2 length): the English letters, then those of the translation, both filled up with 0, the end."""
    column = COLUMNS.index(language)
    spelled = [
        _spelled(row[0], dictionary.length) + _spelled(row[column], dictionary.length) for row in dictionary.words
    ]
    return torch.tensor(spelled)


def lesson(dictionary: Dictionary, language: Language) -> Lesson:
    """Every word to learn, and the same words to watch."""
    rows = ids(dictionary, language)
    return Lesson(train=rows, dev=rows, answer=dictionary.length)


def keep(dictionary: Dictionary) -> str:
    """Its digest, by which `kept` finds it on this machine: results name their words so, and never hold them."""
    path = _place(dictionary.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.put_json(path, asdict(dictionary))
    return dictionary.digest


def kept(digest: str) -> Dictionary:
    """The dictionary that was kept; UserError where there is none."""
    path = _place(digest)
    if not path.exists():
        raise UserError(f"Dictionary {digest} is not in {path.parent}; give its file with --data once more.")
    found = files.read_json(path)
    return Dictionary(tuple((english, german, spanish) for english, german, spanish in found["words"]), found["length"])


@dataclass(frozen=True)
class Spelling:
    """The kept dictionary of that digest, into that language."""

    language: Language
    digest: str
    vocabulary: int = SYMBOLS

    def lesson(self, seed: int) -> Lesson:
        """Every word; nothing is drawn."""
        return lesson(kept(self.digest), self.language)

    def __str__(self) -> str:
        return f"en-{self.language}"


def _place(digest: str) -> Path:
    return cache().with_name("dictionaries") / f"{digest}.json"


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if not path.is_file():
        raise UserError(f"--data {path}: there is no such file. It is a table with tab-separated columns en, de, es.")
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        raise UserError(f"--data {path} is no text in UTF-8, plain or gzipped: {problem}.") from None
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    given = table.fieldnames or []
    missing = [name for name in COLUMNS if name not in given]
    if missing:
        raise UserError(
            f"--data {path}: line 1 names no column {', '.join(missing)}. It is to name en, de and es, separated by "
            f"tabs; it has: {', '.join(given)[:80] or 'nothing'}."
        )
    try:
        yield from table
    except csv.Error as problem:
        raise UserError(f"--data {path}, line {table.line_num + 1}: {problem}.") from None


def _drawn(count: int, generator: np.random.Generator) -> list[str]:
    """Distinct words of two or three syllables, drawn as often the one as the other; of two there are 4,225."""
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = generator.integers(len(SYLLABLES), size=generator.integers(2, 4))
        words.setdefault("".join(SYLLABLES[each] for each in syllables))
    return list(words)


def _usable(words: Words, length: int) -> bool:
    return words[1] != words[2] and all(re.fullmatch(f"[a-z]{{1,{length}}}", word) for word in words)


def _spelled(word: str, length: int) -> list[int]:
    return [ord(letter) - ord("a") + 1 for letter in word] + [0] * (length - len(word))
