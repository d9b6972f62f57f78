from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunescope.data.conversations import unfold
from tunescope.data.row import Row
from tunescope.data.splits import keys_of, repeats, shared, split
from tunescope.errors import UserError

rows = st.lists(st.fixed_dictionaries({"text": st.sampled_from("abcdefghij"), "label": st.booleans()}))
cuttable = rows.filter(lambda some: len({row["text"] for row in some}) >= 3)


def bag(some):
    return Counter((row["text"], row["label"]) for row in some)


@given(cuttable, st.integers(0, 3), st.randoms(), st.sampled_from([None, ("text",)]))
@settings(max_examples=150, deadline=None)
def test_the_cut_depends_on_content_and_seed_and_never_on_order(some, seed, random, by):
    mixed = list(some)
    random.shuffle(mixed)
    one, other = (split(order, seed=seed, by=by).parts() for order in (some, mixed))
    assert {name: bag(part) for name, part in one.items()} == {name: bag(part) for name, part in other.items()}


@given(cuttable, st.sampled_from([None, ("text",)]))
@settings(max_examples=150, deadline=None)
def test_equal_rows_land_in_one_part_and_every_row_in_exactly_one(some, by):
    parts = split(some, by=by, share=0.3).parts()
    assert sum(map(bag, parts.values()), Counter()) == bag(some)
    assert all(parts.values())
    keys = [{row["text"] if by else (row["text"], row["label"]) for row in part} for part in parts.values()]
    assert len(keys[0] | keys[1] | keys[2]) == sum(map(len, keys))


def test_a_number_and_the_text_that_it_is_read_as_are_one_input():
    numbers, words = [[{"text": kind(n), "label": n % 2} for n in range(30)] for kind in (int, str)]
    parts = split(numbers + words[::2], by=("text",), share=0.2).parts()
    held = [{str(row["text"]) for row in part} for part in parts.values()]
    assert len(set.union(*held)) == sum(map(len, held)) == 30
    assert shared(numbers, words, ("text",)) == list(range(1, 31)) and not shared(numbers, words)
    assert repeats([numbers[1], words[1], {"text": True}, {"text": "true"}], ("text",)) == [2, 4]
    for some, dev in ((numbers, [0, 9, 14]), (words, ["20", "21", "29"])):  # as they were cut before
        assert [row["text"] for row in split(some, by=("text",)).dev] == dev


def test_distinct_rows_are_cut_into_exactly_the_shares_and_the_notes_say_so():
    some = [{"text": str(i)} for i in range(250)]
    cut = split(some, share=0.1, seed=3)
    assert [len(part) for part in cut.parts().values()] == [200, 25, 25]
    assert [row["text"] for row in cut.train] == sorted((row["text"] for row in cut.train), key=int)
    assert cut.notes == (
        "dev and test cut from the training file by a hash of the content (seed 3): "
        "200 train, 25 dev, 25 test rows; equal rows stay together.",
    )
    assert split(some, seed=4).test != split(some, seed=3).test


def test_a_given_part_is_left_alone_and_only_a_cut_is_told():
    some = [{"text": str(i)} for i in range(20)]
    test = [{"text": "3"}, {"text": "x"}, {"text": "3"}]
    cut = split(some, test=test, by=("text",))
    assert cut.test == test
    assert (len(cut.train), len(cut.dev)) == (18, 2)
    assert len(cut.notes) == 1 and cut.notes[0].endswith("rows with equal text stay together.")
    assert split(some, dev=test, test=test).notes == ()


def test_repeats_and_shared_rows_are_told_by_line():
    some = [Row({"text": t, "label": n}, "a", line) for line, (t, n) in enumerate(["a1", "b1", "a1", "a2"], start=5)]
    assert repeats(some) == [7]
    assert repeats(some, ("text",)) == [7, 8]
    assert shared(some[:1], some[1:]) == [7]
    assert shared(some[:1], some[1:], ("text",)) == [7, 8]


def test_what_differs_by_case_blanks_or_the_form_of_a_character_is_shared_where_it_is_asked_loosely():
    texts = ["good film. ", "Good\u00a0\n FILM.", "\uff47ood film.", "good film", "goodfilm."]
    train, other = [{"text": "Good film.", "n": 1}], [{"text": text, "n": 1} for text in texts]
    assert shared(train, other, ("text",)) == []
    assert shared(train, other, ("text",), loosely=True) == [1, 2, 3]
    assert shared([{"text": "1.5"}], [{"text": 1.5}, {"text": 1}], ("text",), loosely=True) == [1]
    assert len(set(keys_of([*train, *other], ("text",)))) == 6  # files are cut by their texts as they are


def test_the_end_of_a_conversation_is_shared_where_the_turns_before_it_are():
    def talk(first, last):
        said = [("user", first), ("assistant", "Well."), ("user", last), ("assistant", "So.")]
        return Row({"messages": [{"role": role, "content": text} for role, text in said]}, "talks.jsonl", 1)

    train = [talk("Of roses.", "Yes, go on."), talk("Of oaks.", "yes")]
    other = [talk("Of the sun.", "Yes, go on."), talk("of  OAKS.", "YES")]
    unfold(train)
    unfold(other)
    assert [shared(train, [row], ("input",), loosely=True) for row in other] == [[], [1]]


def test_numbers_and_texts_are_different_values():
    assert repeats([{"a": 1}, {"a": "1"}, {"a": True}, {"a": None}]) == []


def test_too_few_rows_or_a_bad_share_are_refused():
    with pytest.raises(UserError, match="3 rows, of which 2 distinct, cannot be cut into train and dev and test"):
        split([{"a": 1}, {"a": 2}, {"a": 2}])
    with pytest.raises(UserError, match=r"of which 1 distinct in a, cannot .* for each part, or another field\."):
        split([{"a": 1, "b": n} for n in range(9)], by=("a",))
    with pytest.raises(UserError, match=r"share=0.5\) must lie between 0 and 0.5. Type: share=0.1"):
        split([{"a": i} for i in range(9)], share=0.5)
