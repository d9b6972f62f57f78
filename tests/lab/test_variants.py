"""Variants of skills and two skills in a row, against lists written by hand."""

import numpy as np
import pytest

from tunescope.errors import UserError
from tunescope.lab.worlds.skills import SKILLS
from tunescope.lab.worlds.variants import VARIANTS, find_variant

BY_HAND = {
    "add3": [6, 4, 10, 6, 3, 8, 4],
    "rotate_two": [7, 3, 0, 5, 1, 3, 1],
    "rotate_back": [1, 3, 1, 7, 3, 0, 5],
    "reverse_halves": [7, 1, 3, 3, 1, 5, 0],
    "swap_halves": [3, 0, 5, 1, 3, 1, 7],
    "running_minimum": [3, 1, 1, 1, 0, 0, 0],
    "maximum": [7] * 7,
    "copy_last": [1] * 7,
    "rank_from_above": [2, 4, 0, 2, 6, 1, 4],
    "smaller_of_two": [1, 1, 1, 3, 0, 0, 1],
    "reverse then add1": [2, 6, 1, 4, 8, 2, 4],
    "add1 then reverse": [2, 6, 1, 4, 8, 2, 4],
    "reverse then rotate": [5, 0, 3, 7, 1, 3, 1],
    "rotate then reverse": [3, 1, 5, 0, 3, 7, 1],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_variant_gives_the_list_written_by_hand(name: str) -> None:
    assert find_variant(name)(np.array([3, 1, 7, 3, 0, 5, 1])).tolist() == BY_HAND[name]


def test_every_variant_has_its_list_and_none_is_a_skill_under_another_name() -> None:
    assert set(VARIANTS) <= set(BY_HAND)
    sequence = np.array([[3, 1, 7, 3, 0, 5, 1, 2]])
    outputs = [tuple(skill(sequence)[0].tolist()) for skill in (SKILLS | VARIANTS).values()]
    same = {name for name, out in zip(SKILLS | VARIANTS, outputs, strict=True) if outputs.count(out) > 1}
    assert same == {"add3", "add1_add2"}  # one known as composed, one as a variant


def test_variants_of_many_sequences_are_those_of_each() -> None:
    many = np.random.default_rng(0).integers(0, 6, (20, 6))
    for name in VARIANTS:
        assert find_variant(name)(many).tolist() == [find_variant(name)(one).tolist() for one in many], name


def test_a_skill_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="asked for the skill 'inverse'; there are: ascending, "):
        find_variant("reverse then inverse")
