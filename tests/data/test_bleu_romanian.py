"""BLEU of Romanian: its tokens by hand and by Unicode's own decomposition, its score by sacrebleu."""

import sys
import unicodedata

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_tools import ragged, score

from tunescope.data.corpus import corpus
from tunescope.data.metric import find_metric
from tunescope.data.metrics import bleu_romanian
from tunescope.errors import UserError

WORDS = ["Știri", "Ştiri", "stiri", "în", "ţară", "țară", "despre", "apă,", "„apa”", "şi", "3.500"]

sentence = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
segments = st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=6)


def test_a_letter_loses_its_mark_and_no_other_letter_does():
    marked = "".join(map(chr, bleu_romanian.PLAIN))
    plain = "".join(one for one in unicodedata.normalize("NFD", marked) if not unicodedata.combining(one))
    assert marked.translate(bleu_romanian.PLAIN) == plain
    assert len(marked) == 14 and "é ö".translate(bleu_romanian.PLAIN) == "é ö"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Ştirile şi ţara.", "Stirile si tara ."),
        ("Știrile „de azi”, într-un an", 'Stirile " de azi " , intr-un an'),
        ("R&D: 10 % din dl. Ionescu\u200b", "R & D : 10 % din dl. Ionescu"),
        ("Apă，da？", "Apa , da ?"),
        ("", ""),
        ("„Nu vom semna acest acord.”", '" Nu vom semna acest acord " .'),  # as normalize-punctuation.perl has it
        ("„Nu,” a spus.", '" Nu " , a spus .'),
    ],
)
def test_the_tokens_are_moses_without_marks(text, tokens):
    assert bleu_romanian.tokens([text]) == [tokens]


@given(segments, st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_score_is_sacrebleus_without_smoothing(some, lowercase):
    outputs, references = [one for one, _ in some], [own for _, own in some]
    split = [bleu_romanian.tokens(own) for own in references]
    oracle = sacrebleu.corpus_bleu(
        bleu_romanian.tokens(outputs),
        ragged(split),
        tokenize="none",
        smooth_method="none",
        lowercase=lowercase,
        force=True,
    )
    assert score("bleu_romanian", outputs, references, lowercase) == pytest.approx(oracle.score, abs=1e-9)


def test_wrong_marks_cost_nothing():
    right = "Știrile despre țară sunt în ziar."
    for written in (right, "Ştirile despre ţară sunt în ziar.", "Stirile despre tara sunt in ziar."):
        assert score("bleu_romanian", [written], [[right]]) == pytest.approx(100)
    assert score("bleu_romanian", ["Știrile despre"], [[right]]) == 0.0


def test_without_sacremoses_it_stops_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    bleu_romanian._moses.cache_clear()
    with pytest.raises(UserError, match=r"^bleu_romanian needs sacremoses\. Type: pip install 'tunescope\[metrics\]'$"):
        find_metric("bleu_romanian").needs()


def test_the_corpus_is_english_to_romanian_whichever_file_is_first(tmp_path):
    (tmp_path / "newstest2016-ref.ro.sgm").write_text('<doc docid="a"><seg id="1">Apă</seg></doc>')
    (tmp_path / "newstest2016-src.en.sgm").write_text('<doc docid="a"><seg id="1">Water</seg></doc>')
    (tmp_path / "train.source").write_text("Tea\n")
    (tmp_path / "train.target").write_text("Ceai\n")
    (tmp_path / "valid.jsonl").write_text('{"translation": {"ro": "Pâine", "en": "Bread"}}\n')
    found = corpus(f"wmt_en_ro:{tmp_path}")
    texts = {part: [(row["input"], row["target"]) for row in rows] for part, rows in found.items()}
    assert texts == {"train": [("Tea", "Ceai")], "dev": [("Bread", "Pâine")], "test": [("Water", "Apă")]}


def test_pairs_of_other_languages_and_directions_are_not_taken_for_it(tmp_path):
    (tmp_path / "train.de").write_text("Tee\n")
    (tmp_path / "train.en").write_text("Tea\n")
    with pytest.raises(UserError, match=r"has no files that wmt_en_ro knows\. It holds: train\.de, train\.en"):
        corpus(f"wmt_en_ro:{tmp_path}")
    (tmp_path / "three").mkdir()
    for side, text in (("de", "Tee"), ("en", "Tea"), ("ro", "Ceai")):  # of which two are its own
        (tmp_path / "three" / f"train.{side}").write_text(f"{text}\n")
    (row,) = corpus(f"wmt_en_ro:{tmp_path / 'three'}")["train"]
    assert (row["input"], row["target"]) == ("Tea", "Ceai")
    for direction, source, target in (("enro", "en", "ro"), ("roen", "ro", "en")):
        for role, side in (("src", source), ("ref", target)):
            text = f'<doc docid="a"><seg id="1">{side}</seg></doc>'
            (tmp_path / f"newstest2016-{direction}-{role}.{side}.sgm").write_text(text)
    found = corpus(f"wmt_en_ro:{tmp_path}")
    assert {part: (rows[0]["input"], rows[0]["target"]) for part, rows in found.items()} == {"test": ("en", "ro")}
