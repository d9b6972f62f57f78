"""What is odd in the labels of rows, counted by hand."""

import pytest

from tunescope.data.row import Row
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.label_notes import label_notes

WORDS = {"neg": "bad", "pos": "good"}


def rows(*pairs):
    return [Row({"text": text, "label": label}, "a", line) for line, (text, label) in enumerate(pairs, start=1)]


def alike(labels: str) -> str:
    ways = "case, blanks, forms of characters or how a number is written"
    return f"The labels {labels} differ by {ways} only, and count as different ones."


CLEAN = rows(("a", "neg"), ("b", "pos"), ("a", "neg"))


@pytest.mark.parametrize(
    ("words", "parts", "told"),
    [
        (WORDS, {"train": CLEAN, "test": CLEAN}, []),
        (
            WORDS,
            {"train": rows(("a", "neg"), ("b", "pos"), ("a", "pos")), "test": rows(("b", "neg"), ("c", "pos"))},
            [
                "3 of 3 train rows have an input that stands with another label too (lines 1, 2, 3).",
                "1 of 2 test rows have an input that stands with another label too (lines 1).",
            ],
        ),
        (
            {"Neg": "x", "neg": "y", "very good": "z", "verygood": "w", "pos": "v"},
            {},
            [
                alike("'Neg', 'neg'"),
                alike("'very good', 'verygood'"),
            ],
        ),
        (
            {"0": "dull", "0.0": "bright", "1": "good", "1.00": "bad", "10": "best"},
            {},
            [alike("'0', '0.0'"), alike("'1', '1.00'")],
        ),
        (
            {"caf\u00e9": "x", "cafe\u0301": "y", "tea": "z"},
            {},
            [alike("'caf\u00e9', 'cafe\u0301'")],
        ),
        (
            WORDS | {"mixed": "so"},
            {"train": CLEAN, "dev": CLEAN[:1]},
            ["No train row has 1 of the 3 labels: mixed.", "No dev row has 2 of the 3 labels: pos, mixed."],
        ),
        (
            {"0": "0", "1": "1"},
            {},
            [
                "The labels are numbers, and the model is asked for the words '0', '1'. To name what they mean, type: "
                "--words 0=WORD,1=WORD"
            ],
        ),
        (
            {"-1": "-1", "0": "0"},
            {},
            [
                "The labels are numbers, and the model is asked for the words '-1', '0'. To name what they mean, type: "
                "--words=-1=WORD,0=WORD"
            ],
        ),
        ({"0": "bad", "1": "good"}, {}, []),
    ],
    ids=[
        "nothing",
        "conflicts",
        "nearly one",
        "one in another form",
        "one number",
        "missing",
        "numbers",
        "numbers below 0",
        "named numbers",
    ],
)
def test_what_is_odd_is_told_and_nothing_else(words, parts, told):
    assert label_notes(Classification(words=words), parts) == told
    if told and "numbers" in told[0]:
        assert label_notes(Classification(words=words, by="head"), parts) == []
