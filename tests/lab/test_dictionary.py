"""A dictionary world holds the words of its file that it can spell, the same for ever, and says what it cannot read."""

import gzip
from pathlib import Path

import pytest
import torch

from tunescope.errors import UserError
from tunescope.lab.worlds.dictionary import SYMBOLS, Dictionary, Spelling, ids, keep, kept, lesson, read, synthetic
from tunescope.lab.worlds.lessons import exact, problem
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.trial.train.settings import Settings

HEAD = "en\tde\tes\tn_de\tn_es"
ROWS = [("house", "haus", "casa"), ("door", "tuer", "puerta"), ("sea", "meer", "mar")]


def table(path: Path, *lines: str, fill: int = 20) -> Path:
    """A file of the lines and, after them, `fill` rows that can be used."""
    words = synthetic(fill).words if fill else ()
    path.write_text("\n".join([*lines, *("\t".join([*row, "1", "1"]) for row in words)]) + "\n", encoding="utf-8")
    return path


def test_usable_rows_are_kept_in_the_order_of_the_file_and_no_others(tmp_path: Path) -> None:
    refused = [
        "bank\tbank\tbank\t1\t1",  # German and Spanish alike
        "house\theim\thogar\t1\t1",  # English seen before
        "year\tjahr\taño\t1\t1",  # no letter from a to z
        "understand\tverstehen\tentender\t1\t1",  # ten letters
        "was\twar\tfue\t2\t1",  # two German words
        "cut\tschnitt",  # short
    ]
    given = ["\t".join([*row, "1", "1"]) for row in ROWS]
    found = read(table(tmp_path / "words.tsv", HEAD, given[0], *refused, *given[1:]), most=100)
    assert found.words[:3] == tuple(ROWS) and found.words[3:] == synthetic(20).words
    assert read(tmp_path / "words.tsv", most=2).words == tuple(ROWS[:2])


def test_a_gzipped_file_reads_like_a_plain_one_and_counts_of_translations_may_be_missing(tmp_path: Path) -> None:
    plain = table(tmp_path / "plain.tsv", "es\ten\tde", "casa\thouse\thaus")
    packed = tmp_path / "packed.tsv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read(plain, most=9) == read(packed, most=9)
    assert read(plain, most=9).words[0] == ROWS[0]
    for number, other in enumerate((b"\xef\xbb\xbf" + plain.read_bytes(), plain.read_bytes().replace(b"\n", b"\r"))):
        file = tmp_path / f"{number}.tsv"  # with a mark of the order of its bytes, or old ends of lines
        file.write_bytes(other)
        assert read(file, most=9) == read(plain, most=9)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no such file"),
        (b"en\tde\nhouse\thaus\n", "line 1 names no column es. .* it has: en, de"),
        (b"", "line 1 names no column en, de, es. .* it has: nothing"),
        (b"en\tde\tes\nhouse\thaus\tcasa\n", "1 usable rows; a dictionary needs 20"),
        (b"\xff\xfe\x00", "is no text in UTF-8"),
        (b"\x1f\x8bnot packed", "is no text in UTF-8"),
        (gzip.compress(b"en\tde\tes\n" * 99, mtime=0)[:12] + b"damaged", "is no text in UTF-8"),
        (b"en\tde\tes\n" + b"a" * 140_000 + b"\tb\tc\n", "line 2: field larger than field limit"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "words.tsv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"^--data .*words.tsv.*{says}") as caught:
        read(path, most=10)
    assert "\n" not in str(caught.value)


def test_synthetic_words_are_one_to_one_and_the_same_for_the_same_seed() -> None:
    found = synthetic(500)
    assert found == synthetic(500) and found != synthetic(500, seed=1)
    for language in zip(*found.words, strict=True):
        assert len(set(language)) == 500
    assert all(german != spanish for _, german, spanish in found.words)
    assert {len(word) for row in found.words for word in row} == {4, 6}
    with pytest.raises(UserError, match="asked: 10 of 5"):
        synthetic(10, length=5)


def test_a_word_is_its_letters_then_ends() -> None:
    rows = ids(Dictionary(tuple(ROWS), length=6), "es")
    assert rows.tolist()[2] == [19, 5, 1, 0, 0, 0, 13, 1, 18, 0, 0, 0]  # sea, mar
    assert rows.shape == (3, 12) and int(rows.max()) < SYMBOLS


def test_kept_words_come_back_by_their_digest_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))
    found = synthetic(5)
    assert kept(keep(found)) == found
    assert Dictionary(found.words[::-1]).digest != found.digest != Dictionary(found.words, length=7).digest
    with pytest.raises(UserError, match=r"Dictionary 00ff is not in .*; give its file with --data once more"):
        kept("00ff")


def test_a_dictionary_that_needs_more_symbols_than_the_vocabulary_is_refused() -> None:
    model = gpt2(Shape(1, 1, 8), vocabulary=10, positions=16, seed=0)
    with pytest.raises(UserError, match=r"needs 2[0-7] symbols; the model's vocabulary has 10"):
        problem(model, dict(model.named_parameters()), 1e-3, lesson(synthetic(20), "de"))


def test_a_model_pretrained_on_a_kept_dictionary_spells_its_german_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path))
    words = synthetic(20, length=6)
    settings = Settings(steps=150, batch_size=20, eval_every=50)
    recipe = Pretraining(Spelling("de", keep(words)), Shape(1, 2, 32), settings, 1e-2, seed=0)
    model = pretrained(recipe)
    assert sum(exact(model, ids(words, "de"), words.length)) == 20
    again = pretrained(recipe)  # from the cache
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert str(recipe) == "en-de; 1 layer, 2 heads, width 32; seed 0"
