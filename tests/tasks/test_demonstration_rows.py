"""Which rows are shown: against loops written out, and against an exhaustive search where one is bounded."""

from itertools import combinations
from random import Random

import masked
import pytest
import task_tools
import tinyrun
import torch
import torch.nn.functional as F

import tunescope as ts
from tunescope.tasks import demonstration_rows
from tunescope.tasks.answers import row_vectors
from tunescope.tasks.answers.row_vectors import mean_states, text_states

LABELS = ["b", "a", "a", "b", "c", "a", "c", "b", "c"]


def states(rows: int, width: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(1 - F.cosine_similarity(one, other, dim=0))


@pytest.mark.parametrize("seed", range(4))
def test_balanced_rows_are_drawn_label_by_label_and_then_mixed(seed):
    random, expected = Random(seed), []
    for label in ("a", "b", "c"):
        expected += random.sample([index for index, own in enumerate(LABELS) if own == label], 2)
    random.shuffle(expected)
    assert demonstration_rows.balanced(LABELS, 2, seed) == expected


def test_random_rows_are_a_sample_of_all():
    assert demonstration_rows.uniform(9, 4, 7) == Random(7).sample(range(9), 4)


@pytest.mark.parametrize("seed", range(5))
def test_each_diverse_row_is_the_farthest_from_those_before(seed):
    rows = states(11, seed=seed)
    first = Random(seed).randrange(11)
    expected = [first]
    while len(expected) < 4:
        left = [index for index in range(11) if index not in expected]
        expected.append(max(left, key=lambda index: min(distance(rows[index], rows[one]) for one in expected)))
    assert sorted(demonstration_rows.diverse(rows, 4, seed)) == sorted(expected)


@pytest.mark.parametrize("seed", range(8))
def test_diverse_rows_cover_all_rows_within_four_times_the_best_possible_distance(seed):
    rows = states(9, width=3, seed=seed)

    def reach(chosen):
        return max(min(distance(rows[index], rows[one]) for one in chosen) for index in range(9))

    best = min(reach(chosen) for chosen in combinations(range(9), 3))
    assert reach(demonstration_rows.diverse(rows, 3, seed)) <= 4 * best + 1e-12


def test_diverse_rows_are_different_even_where_all_rows_are_equal():
    assert sorted(demonstration_rows.diverse(torch.ones(4, 3), 4, 0)) == [0, 1, 2, 3]


def test_the_closest_rows_are_those_of_the_highest_cosine_and_of_equals_the_one_named_first():
    queries, rows = states(3, seed=1), states(8, seed=2)
    rows[5] = rows[2]
    for query in queries:
        similar = demonstration_rows.unit(rows) @ demonstration_rows.unit(query)
        for members in (range(8), [6, 5, 1, 2], [0, 7, 3]):
            by_cosine = sorted(
                members, key=lambda index: -round(float(F.cosine_similarity(query, rows[index], dim=0)), 12)
            )
            assert demonstration_rows.closest(similar, members, 3) == by_cosine[:3]


@pytest.mark.parametrize("count", [0, 4])
def test_more_than_there_are_and_none_are_refused(count):
    message = f"{count} demonstrations are asked for, of 3 rows. Allowed: 1 to 3."
    with pytest.raises(ts.UserError, match=message):
        demonstration_rows.uniform(3, count, 0)
    with pytest.raises(ts.UserError, match=message):
        demonstration_rows.diverse(states(3), count, 0)
    with pytest.raises(ts.UserError, match=message):
        demonstration_rows.closest(torch.ones(5), (0, 3, 4), count)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_a_row_s_state_is_the_mean_of_transformers_last_hidden_states_padding_or_not(name):
    model = task_tools.model(name)
    texts = [(5, 6, 7), (8, 9, 10, 11, 12), (13,)]
    found = mean_states(model, texts, task_tools.sentence_piece(bos=name != "t5"), batch_size=2)
    for row, state in zip(texts, found, strict=True):
        ids = torch.tensor([row])
        with torch.no_grad():
            if name == "t5":
                out = model(input_ids=ids, decoder_input_ids=torch.tensor([[0]])).encoder_last_hidden_state
            else:
                out = model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(state, out[0].mean(0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_mean_of_a_long_row_in_16_bits_is_taken_in_float32(dtype, monkeypatch):
    lengths = (2501, 300)
    made = (30 + 5 * states(2501, 2)).to(dtype).expand(2, -1, -1)  # add up to 75,000; float16 holds 65,504
    monkeypatch.setattr(row_vectors, "_last", lambda *_: made)
    found = mean_states(tinyrun.model(), [[5] * length for length in lengths], tinyrun.tokenizer())
    expected = torch.stack([made[0, :length].double().mean(0) for length in lengths])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


def test_texts_that_are_longer_than_the_encoder_are_cut_and_empty_ones_have_a_state():
    model, tokenizer = masked.make("bert")
    texts = ["film " * 100, "the plot", ""]
    found = text_states(model, texts, tokenizer)
    for text, state in zip(texts, found, strict=True):
        ids = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            expected = model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0].mean(0)
        torch.testing.assert_close(state, expected, rtol=0, atol=1e-10)
    bare, words = tinyrun.model(), tinyrun.tokenizer()
    assert words("")["input_ids"] == [] and text_states(bare, [""], words).isfinite().all()
