"""Demonstrations that are like the query, and several sets of them as one answer."""

import math

import masked
import pytest
import task_tools
import torch

from tunescope.errors import UserError
from tunescope.tasks.similarity import averaged, one_of_each, pooled, similar


def literal(rows, query, labels, share, without):
    """Gao et al. 2021, section 6.2, one row at a time."""
    kept = {}
    for label in sorted(set(labels)):
        scored = []
        for index, row in enumerate(rows):
            if labels[index] == label and index != without:
                dot = sum(a * b for a, b in zip(row, query, strict=True))
                scored.append((dot / math.hypot(*row) / math.hypot(*query), -index))
        scored.sort(reverse=True)
        kept[label] = tuple(-index for _, index in scored[: max(1, int(len(scored) * share))])
    return kept


@pytest.mark.parametrize("without", [None, 3])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_the_most_similar_share_of_every_class_stays_best_first(share, without):
    g = torch.Generator().manual_seed(0)
    rows, query = torch.randn(23, 5, generator=g, dtype=torch.float64), torch.randn(5, generator=g, dtype=torch.float64)
    labels = [index * 7 % 3 for index in range(23)]
    got = similar(rows, query, labels, share=share, without=without)
    assert got == literal(rows.tolist(), query.tolist(), labels, share, without)
    assert similar(3 * rows, 0.2 * query, labels, share=share, without=without) == got  # a direction has no length


def test_of_equally_similar_rows_the_earlier_stays():
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert similar(rows, torch.tensor([1.0, 0.0]), [0] * 4) == {0: (1, 2)}


def test_draws_take_one_row_of_each_class_and_are_the_same_for_the_same_seed():
    kept = {0: (4, 2, 7), 1: (1,), 5: (3, 0)}
    draws = one_of_each(kept, 50, seed=3)
    assert all(one[0] in kept[0] and one[1] == 1 and one[2] in kept[5] for one in draws)
    assert {one[0] for one in draws} == {2, 4, 7}
    assert draws == one_of_each(kept, 50, seed=3) != one_of_each(kept, 50, seed=4)


def test_an_ensemble_is_the_geometric_mean_of_its_sets():
    chance = torch.rand(4, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = (chance[0] * chance[1] * chance[2] * chance[3]) ** 0.25
    torch.testing.assert_close(averaged(chance.log()).exp(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["bert", "roberta", "t5", "gpt2"])
def test_pooled_states_are_the_mean_over_each_text_alone(name):
    if name == "gpt2":
        tokenizer = task_tools.byte_level()
        model = task_tools.model(name, len(tokenizer))
    else:
        model, tokenizer = masked.make(name)
    texts = ["the film was great", "bad", "it is not good in every way", "the plot"]
    expected = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt")["input_ids"]
        base = model.get_encoder() if name == "t5" else model.base_model
        with torch.no_grad():
            expected.append(base(input_ids=given).last_hidden_state[0].mean(0))
    got = pooled(model, tokenizer, texts, batch_size=3)
    torch.testing.assert_close(got, torch.stack(expected), rtol=0, atol=1e-10)


def test_a_text_longer_than_the_model_is_cut_for_pooling():
    model, tokenizer = masked.make("bert")
    assert pooled(model, tokenizer, ["good film " * 60]).isfinite().all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 0.0}, r"similar\(share=0\) is the part of each class that stays: above 0, and 1 at most"),
        ({"share": 1.5}, r"similar\(share=1.5\) is the part"),
        ({"without": 2}, "class 1 has no row beside the query's own. Give two rows a class at least"),
    ],
)
def test_what_leaves_no_demonstration_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        similar(torch.eye(3), torch.ones(3), [0, 0, 1], **given)
