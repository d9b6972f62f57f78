"""Outputs with references that several metrics are tried on, and the shape in which sacrebleu takes references."""

from pathlib import Path

from hypothesis import strategies as st

E2E = Path(__file__).parents[3] / "shared/data/e2e/validation.jsonl.gz"

sentence = st.lists(
    st.sampled_from(["the", "The", "cat", "sat", "on", "mat.", "it's", "1,000", "don't", "3-4", "&amp;", "<b>"]),
    max_size=9,
).map(" ".join)
segments = st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=4)), min_size=1, max_size=6)


def ragged(references):
    most = max(map(len, references))
    return [[row[i] if i < len(row) else None for row in references] for i in range(most)]


def parted(some):
    return [output for output, _ in some], [references for _, references in some]
