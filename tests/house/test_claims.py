"""The table of claims: what two intervals say of one, and that each names a claim, a cell and a recipe."""

import re

import pytest

from scripts import claims
from scripts.numbers import Number, number
from tunescope.reproduce.recipe import recipes


@pytest.mark.parametrize(
    ("above", "below", "told"),
    [
        (Number(2.0, (1.5, 2.5)), Number(1.0, (0.5, 1.4)), claims.HOLDS),
        (Number(2.0, (1.5, 2.5)), Number(1.0, (0.5, 1.6)), claims.UNTOLD),
        (Number(1.0, (0.5, 1.4)), Number(2.0, (1.5, 2.5)), claims.OTHER_WAY),
        (Number(2.0, None), Number(1.0, (0.5, 1.4)), "**holds** in the mean"),
        (Number(1.0, None), Number(2.0, None), "the other way round in the mean"),
    ],
)
def test_a_claim_holds_where_the_intervals_do_not_meet(above: Number, below: Number, told: str) -> None:
    assert claims.outcome(above, below) == told


def test_every_claim_is_of_cells_that_there_are_and_its_command_of_a_recipe() -> None:
    lines = claims.table().splitlines()[2:]
    assert len(lines) == len(claims.read()) > 20
    for line in lines:
        assert line.count("|") == 7 and "`tunescope reproduce " not in line.rpartition("|")[0].rpartition("|")[0]
        typed = line.split("|")[-2].strip().strip("`").split()
        assert not typed or typed == ["as", "above"] or typed[2] in recipes()


def test_a_claim_tells_the_command_of_its_published_size_and_its_two_numbers() -> None:
    one = claims.Claim(
        "P", "A is above B", "prefix-main", ("full tuning", "bleu"), ("LoRA, 2 %", "bleu"), "M", typed="--model X"
    )
    assert claims.typed(one) == "tunescope reproduce prefix-main --model X"
    assert claims.bullet(one) == "- A is above B: **holds**, 46.7 [39.2, 54.3] to 28.7 [25.3, 32.2] (M)."


def test_the_counts_are_of_all_claims() -> None:
    counted = [int(one) for one in re.findall(r"\d+", claims.counts())]
    assert counted[0] == sum(counted[1:]) == len(claims.read())


def test_a_cell_that_there_is_not_is_no_claim() -> None:
    with pytest.raises(KeyError, match="no such row"):
        number("prefix-main", "no such row", "bleu")
