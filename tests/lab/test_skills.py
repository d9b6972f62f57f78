"""The skills against lists written by hand and against Python's own sorted and count."""

import numpy as np
import pytest

from tunescope.errors import UserError
from tunescope.lab.skills import SKILLS, find
from tunescope.lab.world import World

BY_HAND = {
    "ascending": [0, 1, 1, 2, 3, 3, 3, 5, 7, 7],
    "descending": [7, 7, 5, 3, 3, 3, 2, 1, 1, 0],
    "add1": [4, 2, 8, 4, 1, 6, 2, 8, 4, 3],
    "add2": [5, 3, 9, 5, 2, 7, 3, 9, 5, 4],
    "reverse": [2, 3, 7, 1, 5, 0, 3, 7, 1, 3],
    "rotate": [1, 7, 3, 0, 5, 1, 7, 3, 2, 3],
    "double_histogram": [3, 2, 2, 3, 1, 1, 2, 2, 3, 1],
}


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_gives_the_list_written_by_hand(name: str) -> None:
    assert find(name)(np.array([3, 1, 7, 3, 0, 5, 1, 7, 3, 2])).tolist() == BY_HAND[name]


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_of_many_sequences_is_the_skill_of_each(name: str) -> None:
    many = World().draw(50, np.random.default_rng(0))
    assert find(name)(many).tolist() == [find(name)(one).tolist() for one in many]


def test_skills_agree_with_plain_python() -> None:
    for sequence in World().draw(200, np.random.default_rng(1)):
        plain = sequence.tolist()
        assert find("ascending")(sequence).tolist() == sorted(plain)
        assert find("descending")(sequence).tolist() == sorted(plain, reverse=True)
        assert find("double_histogram")(sequence).tolist() == [plain.count(digit) for digit in plain]
        assert find("reverse")(sequence).tolist() == plain[::-1]
        assert find("rotate")(sequence).tolist() == [*plain[1:], plain[0]]


def test_ten_equal_digits_count_to_ten() -> None:
    assert find("double_histogram")(np.full(10, 4)).tolist() == [10] * 10


def test_an_unknown_skill_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UserError, match="asked for the skill 'sort'; it has: ascending, descending, add1"):
        find("sort")
