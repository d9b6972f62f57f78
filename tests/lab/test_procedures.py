"""Procedures against states written by hand, and what a model writes against transformers' own generation."""

import numpy as np
import pytest
import torch

import tunescope as ts
from tunescope.lab.worlds.lessons import right
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.lab.worlds.procedures import BASE, PROCEDURES, find, lesson, rows, writes
from tunescope.lab.worlds.world import part_of

BY_HAND = {
    "plus-one": ([9, 0, 4, 7, 8, 3], [[0, 1, 5, 8, 9, 4], [1, 2, 6, 9, 0, 5], [2, 3, 7, 0, 1, 6]]),
    "neighbour-sums": ([1, 2, 3, 4, 5, 6], [[7, 3, 5, 7, 9, 1], [8, 0, 8, 2, 6, 0], [8, 8, 8, 0, 8, 6]]),
    "hops": ([3, 0, 1, 6, 7, 2, 4, 5, 6], [[4], [7], [5]]),
}


@pytest.mark.parametrize("name", PROCEDURES)
def test_the_states_are_those_worked_out_by_hand(name):
    given, states = BY_HAND[name]
    found = find(name).states(np.array([given]))
    assert [state.tolist() for state in found] == [[state] for state in states]


@pytest.mark.parametrize("name", PROCEDURES)
def test_rows_are_what_is_given_and_then_every_state_or_the_last(name):
    procedure = find(name)
    with_steps, written = rows(procedure, "test", 30, 4, steps=True)
    at_once, answer = rows(procedure, "test", 30, 4, steps=False)
    given = procedure.given("test", 30, 4)
    assert written == procedure.times * answer
    assert torch.equal(at_once, torch.cat([torch.from_numpy(given), with_steps[:, -answer:]], 1))
    assert np.array_equal(with_steps[:, :-written].numpy(), given)
    assert {part_of(row) for row in given} == {"test"} and given.max() < BASE


def test_hops_walk_around_one_cycle_so_that_no_look_at_the_order_gives_the_answer():
    given = find("hops").given("train", 400, 0)
    orders, at = given[:, :-1], given[:, -1:]
    assert np.array_equal(np.sort(orders), np.tile(np.arange(8), (400, 1)))
    seen = [at]
    for _ in range(8):
        seen.append(np.take_along_axis(orders, seen[-1], axis=1))
    walked = np.concatenate(seen, axis=1)
    assert np.array_equal(np.sort(walked[:, :-1]), np.tile(np.arange(8), (400, 1)))  # each place once
    assert np.array_equal(walked[:, 0], walked[:, -1])
    answers = walked[:, 3]
    where = np.argmax(orders == at, axis=1)  # the place where the start stands
    assert not any((answers == other).any() for other in (walked[:, 0], walked[:, 1], walked[:, 2], where))
    assert len({tuple(row) for row in orders.tolist()}) > 350


def test_training_and_development_rows_are_of_different_parts():
    made = lesson(find("hops"), 40, 0, steps=True)
    assert made.answer == 3
    assert {part_of(row[:9].numpy()) for row in made.train} == {"train"}
    assert {part_of(row[:9].numpy()) for row in made.dev} == {"dev"}


def test_what_is_written_is_what_transformers_generates_and_right_where_every_token_is():
    model = gpt2(Shape(1, 2, 16, initial=0.5), BASE, 24, seed=0)
    ids, written = rows(find("neighbour-sums"), "test", 20, 0, steps=True)
    given = ids[:, :-written]
    found = writes(model, given, written)
    options = {"attention_mask": torch.ones_like(given), "do_sample": False, "pad_token_id": 0}
    assert torch.equal(found, model.generate(given, max_new_tokens=written, **options)[:, given.shape[1] :])
    own = torch.cat([given, found], 1)
    assert right(model, own, written).all()
    assert torch.equal(right(model, ids, written).all(1), (found == ids[:, -written:]).all(1))


def test_no_such_procedure_is_one_line():
    with pytest.raises(
        ts.UserError, match="asked for the procedure 'minus-one'; it has: plus-one, neighbour-sums, hops"
    ):
        find("minus-one")


def test_development_rows_are_the_same_whatever_seed_draws_the_training_rows():
    one, other = (lesson(find("hops"), 40, seed, steps=True) for seed in (0, 5))
    assert torch.equal(one.dev, other.dev) and not torch.equal(one.train, other.train)
