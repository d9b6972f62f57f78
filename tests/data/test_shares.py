"""Parts cut out of one file have their share of each label; the oracle counts rows by hand."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tunescope.data.splits import split
from tunescope.tasks.kinds.classification import Classification

label_of, BY = Classification().label_of, ("text",)
ROWS = [
    {"text": f"{label} {n}", "label": label} for label, many in {"a": 60, "b": 30, "c": 10}.items() for n in range(many)
]
some_rows = st.lists(
    st.builds(lambda text, label: {"text": text, "label": label}, st.sampled_from("abcdefghij"), st.sampled_from("xyz"))
)
cuttable = some_rows.filter(lambda rows: len({row["text"] for row in rows}) >= 3)


def counts(rows):
    return Counter(row["label"] for row in rows)


def test_each_part_has_its_share_of_each_label():
    for seed in range(5):
        cut = split(ROWS, seed=seed, by=BY, label_of=label_of)
        assert counts(cut.dev) == counts(cut.test) == {"a": 6, "b": 3, "c": 1}
        assert cut.by_label and cut.notes[0].endswith("stay together, and labels have their share of each part.")


def test_a_rare_label_is_in_every_part_that_it_has_rows_for():
    for rare, parts in ((1, {"train"}), (2, {"train", "test"}), (3, {"train", "dev", "test"})):
        rows = [row for row in ROWS if row["label"] != "c"] + [{"text": f"c {n}", "label": "c"} for n in range(rare)]
        for seed in range(5):
            cut = split(rows, seed=seed, by=BY, label_of=label_of)
            assert {name for name, part in cut.parts().items() if counts(part)["c"]} == parts
            assert [len(part) for part in (cut.dev, cut.test)] == [9, 9]


def test_a_part_leaves_the_later_ones_a_row_of_each_label_whatever_its_own_share():
    rows = [{"text": f"{label} {n}", "label": label} for label in "ab" for n in range(3)]
    cut = split(rows, by=BY, label_of=label_of, share=0.45)
    assert all(counts(part) == {"a": 1, "b": 1} for part in cut.parts().values())


def test_more_labels_than_a_part_has_rows_take_the_commonest_first():
    rows = [{"text": f"{label} {n}", "label": label} for label in "abcdefgh" for n in range(2 + (label < "d"))]
    cut = split(rows, by=BY, label_of=label_of, share=0.15)
    assert counts(cut.test) == {"a": 1, "b": 1, "c": 1} and counts(cut.dev) == {"a": 1, "b": 1, "c": 1}


def test_where_no_label_can_be_shared_rows_are_cut_as_if_there_were_none():
    rows = [{"text": str(n), "label": str(n)} for n in range(8)]
    cut = split(rows, by=BY, label_of=label_of)
    assert cut == split(rows, by=BY) and not cut.by_label


def test_parts_that_are_given_are_left_alone():
    cut = split(ROWS, ROWS[:3], ROWS[3:6], by=BY, label_of=label_of)
    assert (cut.train, cut.dev, cut.test, cut.notes, cut.by_label) == (ROWS, ROWS[:3], ROWS[3:6], (), False)
    cut = split(ROWS, test=ROWS[:5], by=BY, label_of=label_of)
    assert counts(cut.dev) == {"a": 6, "b": 3, "c": 1} and cut.test == ROWS[:5]


@given(cuttable, st.randoms(), st.sampled_from([0.1, 0.3]))
@settings(max_examples=80, deadline=None)
def test_whatever_the_rows_their_order_is_nothing_and_one_text_is_in_one_part(rows, random, share):
    mixed = list(rows)
    random.shuffle(mixed)
    one, other = (split(order, by=BY, label_of=label_of, share=share).parts() for order in (rows, mixed))
    texts = {name: {row["text"] for row in part} for name, part in one.items()}
    assert texts == {name: {row["text"] for row in part} for name, part in other.items()}
    assert all(texts.values()) and sum(map(len, texts.values())) == len(set().union(*texts.values()))
    assert sum(map(len, one.values())) == len(rows)
