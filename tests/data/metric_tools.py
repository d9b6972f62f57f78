"""Outputs with references that several metrics are tried on, and the shape in which sacrebleu takes references."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tunescope.data.scores import aggregate, statistics

E2E = Path(__file__).parents[3] / "shared/data/e2e/validation.jsonl.gz"

sentence = st.lists(
    st.sampled_from(["the", "The", "cat", "sat", "on", "mat.", "it's", "1,000", "don't", "3-4", "&amp;", "<b>"]),
    max_size=9,
).map(" ".join)
segments = st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=4)), min_size=1, max_size=6)


def parted(some):
    return [output for output, _ in some], [references for _, references in some]


def ragged(references):
    most = max(map(len, references))
    return [[row[i] if i < len(row) else None for row in references] for i in range(most)]


def score(metric, outputs, references, lowercase=False):
    return aggregate(metric, statistics(metric, outputs, references, lowercase=lowercase))[metric]


def e2e():
    """The first 20 tables of the E2E validation set: of the last reference each tenth word is left out, as an output.

    Golden values of it come from the E2E challenge's own NIST class, rouge_score 0.1.2, sacrebleu 2.6 and
    pycocoevalcap 1.2, run outside of this project.
    """
    if not E2E.exists():
        pytest.skip("the E2E data is not here")
    tables = {}
    with gzip.open(E2E, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            tables.setdefault(row["mr"], []).append(row["text_raw"])
    some = list(tables.values())[:20]
    outputs = [" ".join(word for at, word in enumerate(own[-1].split()) if at % 10 != 9) for own in some]
    return outputs, [own[:-1] for own in some]
