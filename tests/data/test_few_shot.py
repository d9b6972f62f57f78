"""K rows a class, five times."""

from collections import Counter
from random import Random

import pytest

from tunescope.data.k_shot import SEEDS, k_shot
from tunescope.data.splits import shared
from tunescope.errors import UserError
from tunescope.tasks.kinds.classification import Classification

ROWS = [{"text": f"text {n}", "label": "abc"[n * n % 3 if n % 7 else 2]} for n in range(300)]
TEST = [{"text": "other", "label": "a"}, {"text": "another", "label": "b"}]
label_of, BY = Classification().label_of, ("text",)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 16])
def test_each_part_has_k_rows_of_each_label_and_none_in_common(k, seed):
    cut = k_shot(ROWS, TEST, label_of, BY, k=k, seed=seed)
    for part in (cut.train, cut.dev):
        assert Counter(row["label"] for row in part) == {"a": k, "b": k, "c": k}
    texts = [row["text"] for row in (*cut.train, *cut.dev)]
    assert len(set(texts)) == 6 * k
    assert cut.test == TEST
    assert cut.notes == (
        f"{k} rows of each label to train on and {k} others to choose by, drawn from 300 by seed {seed}.",
    )


def test_the_draw_depends_on_the_rows_and_the_seed_and_never_on_order():
    mixed = list(ROWS)
    Random(0).shuffle(mixed)
    draws = [k_shot(ROWS, TEST, label_of, BY, k=4, seed=seed) for seed in SEEDS]
    assert [k_shot(mixed, TEST, label_of, BY, k=4, seed=seed) for seed in SEEDS] == draws
    assert len({tuple(row["text"] for row in draw.train) for draw in draws}) == 5


def test_a_label_with_too_few_rows_is_named_with_what_is_allowed():
    rare = [row for row in ROWS if row["label"] != "b"] + [{"text": f"b {n}", "label": "b"} for n in range(5)]
    with pytest.raises(UserError, match=r"label 'b' has 5 different rows\. Allowed: 1 to 2\.$"):
        k_shot(rare, TEST, label_of, BY, k=16)
    alone = [*rare[:-5], {"text": "b", "label": "b"}]
    with pytest.raises(UserError, match=r"No number of them is allowed: 'b' has fewer than 2\. Give it more, or leave"):
        k_shot(alone, TEST, label_of, BY, k=16)


def test_every_row_is_drawn_as_often_as_any_other():
    few = [{"text": str(n), "label": "ab"[n % 2]} for n in range(12)]
    times = Counter(row["text"] for seed in range(600) for row in k_shot(few, TEST, label_of, BY, k=2, seed=seed).train)
    assert len(times) == 12
    assert all(160 < count < 240 for count in times.values())  # 200 and four standard deviations


def test_equal_rows_count_once_and_rows_that_are_in_the_test_set_are_told():
    rows = [{"text": text, "label": label} for text, label in ["x0", "x0", "y0", "z1", "z1", "w1"]]
    cut = k_shot(rows, [rows[0], rows[2]], label_of, BY, k=1)
    assert {row["text"] for row in (*cut.train, *cut.dev)} == {"x", "y", "z", "w"}
    assert len(shared(cut.train, cut.test, BY)) == 1 and len(cut.notes) == 1  # which `check` and `compare` tell
    with pytest.raises(UserError) as caught:
        k_shot(rows, TEST, label_of, BY, k=2)
    assert str(caught.value) == (
        "2 training and 2 development rows of each label are asked for, and label '0' has 2 different rows. "
        "Allowed: 1 to 1."
    )
    with pytest.raises(UserError, match=r"k_shot\(k=0\) must be at least 1. Type: k=16"):
        k_shot(rows, TEST, label_of, BY, k=0)


def test_rows_of_one_text_are_one_whatever_their_ids_and_texts_of_two_labels_are_not_drawn():
    texts = [("x", "0"), ("x", "0"), ("y", "0"), ("z", "1"), ("w", "1"), ("both", "0"), ("both", "1")]
    rows = [{"id": n, "text": text, "label": label} for n, (text, label) in enumerate(texts)]
    for seed in SEEDS:
        cut = k_shot(rows, [{"id": 99, "text": "x", "label": "0"}], label_of, BY, k=1, seed=seed)
        assert sorted(row["text"] for row in (*cut.train, *cut.dev)) == ["w", "x", "y", "z"]
        assert cut == k_shot(rows[::-1], cut.test, label_of, BY, k=1, seed=seed)
        assert cut.notes[1] == "1 inputs with more than one label are not drawn."
        in_train = "x" in {row["text"] for row in cut.train}
        assert len(shared(cut.train, cut.test, BY)) == in_train
