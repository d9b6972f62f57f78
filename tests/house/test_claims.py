"""The table of claims: what two intervals say of one, and that each names a claim, a cell and a recipe."""

import pytest

from scripts import claims
from scripts.claims import Number
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
        assert not typed or typed[2] in recipes()


def test_a_cell_that_there_is_not_is_no_claim() -> None:
    with pytest.raises(KeyError, match="no such row"):
        claims.number("prefix-main", "no such row", "bleu")
