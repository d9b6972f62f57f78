"""The table of claims: what two intervals say of one, and that each names a claim, a cell and a recipe."""

import re
from dataclasses import replace
from statistics import fmean

import pytest

from scripts import claims
from scripts.numbers import Number, compared, number, read
from tunescope.reproduce.recipe import recipes


@pytest.mark.parametrize(
    ("above", "below", "less", "told"),
    [
        (Number(2.0, (1.5, 2.5)), Number(1.0, (0.5, 1.4)), None, claims.HOLDS),
        (Number(2.0, (1.5, 2.5)), Number(1.0, (0.5, 1.6)), None, claims.UNTOLD),
        (Number(1.0, (0.5, 1.4)), Number(2.0, (1.5, 2.5)), None, claims.OTHER_WAY),
        (Number(2.0, None), Number(1.0, (0.5, 1.4)), None, "**holds** in the mean"),
        (Number(1.0, None), Number(2.0, None), None, "the other way round in the mean"),
        (Number(2.0, (1.5, 2.5)), Number(1.0, (0.5, 1.6)), (1.0, (0.1, 1.9)), claims.HOLDS),
        (Number(2.0, (1.5, 2.5)), Number(1.0, (0.5, 1.4)), (1.0, (-0.1, 2.1)), claims.UNTOLD),
        (Number(1.0, None), Number(2.0, None), (-1.0, (-1.9, -0.1)), claims.OTHER_WAY),
    ],
)
def test_a_claim_holds_where_the_difference_is_above_zero_or_the_intervals_do_not_meet(
    above: Number, below: Number, less: tuple[float, tuple[float, float]] | None, told: str
) -> None:
    assert claims.decided(above, below, less) == told


@pytest.mark.parametrize(
    ("above", "below", "less", "told"),
    [
        (Number(1.0, (0.5, 1.4)), Number(1.0, (0.5, 1.4)), (0.0, (-0.1, 0.1)), claims.HOLDS),
        (Number(1.0, (0.5, 1.4)), Number(1.0, (0.5, 1.4)), (0.0, (-0.3, 0.3)), claims.UNTOLD),
        (Number(1.0, (0.5, 1.4)), Number(1.3, (0.8, 1.7)), (-0.3, (-0.4, -0.21)), claims.OTHER_WAY),
        (Number(1.0, (0.5, 1.4)), Number(1.3, (0.8, 1.7)), (-0.3, (-0.4, -0.1)), claims.UNTOLD),
        (Number(1.0, (0.9, 1.1)), Number(1.5, (1.31, 1.7)), None, claims.OTHER_WAY),
        (Number(1.0, (0.9, 1.1)), Number(1.4, (1.2, 1.6)), None, claims.UNTOLD),
        (Number(1.0, (0.9, 1.1)), Number(1.0, (0.9, 1.05)), None, claims.HOLDS),
        (Number(1.0, (0.9, 1.1)), Number(1.0, (0.9, 1.15)), None, claims.UNTOLD),
        (Number(1.0, None), Number(1.1, None), None, "**holds** in the mean"),
    ],
)
def test_one_is_no_worse_where_it_is_above_less_the_margin(
    above: Number, below: Number, less: tuple[float, tuple[float, float]] | None, told: str
) -> None:
    assert claims.decided(above, below, less, margin=0.2) == told


def test_every_claim_of_no_worse_has_a_margin_that_is_told() -> None:
    for one in claims.read():
        assert bool(one.margin) == ("no worse" in one.says), one.says
        assert not one.margin or f"(by less than {one.margin:g})" in claims.bullet(one)


def claim(file: str, above: tuple[str, str], below: tuple[str, str]) -> claims.Claim:
    return claims.Claim("P", "A is above B", file, above, below, "M")


def test_a_difference_is_of_the_same_seeds() -> None:
    one = claim("anchors-smollm2", ("a", "c"), ("b", "c"))
    more = Number(3.0, None, values=(2.0, 3.0, 4.0))
    less, (low, high) = claims.difference(one, more, Number(1.0, None, values=(1.0, 1.0, 1.0))) or (0, (0, 0))
    half = 4.302652729749464 / 3**0.5  # Student's quantile of two degrees of freedom; the differences are 1, 2 and 3
    assert (less, low, high) == (2.0, pytest.approx(2 - half), pytest.approx(2 + half))
    assert claims.difference(one, more, Number(1.0, None, values=(1.0, 1.0))) is None
    two = Number(1.0, None, values=(1.0, 2.0))
    assert claims.difference(one, two, two) is None  # too few for an interval


def test_a_difference_of_a_comparison_is_its_own_pair_in_either_order() -> None:
    (pair,) = [one for one in read("trec-methods")["comparisons"] if one["a"] == "lora"]
    arms = (pair["a"], "accuracy"), (pair["b"], "accuracy")
    none = Number(0.0, None)
    assert claims.difference(claim("trec-methods", *arms), none, none) == (pair["difference"], tuple(pair["interval"]))
    low, high = pair["interval"]
    assert claims.difference(claim("trec-methods", *arms[::-1]), none, none) == (-pair["difference"], (-high, -low))
    other = (pair["a"], "accuracy"), ("no such arm", "accuracy")
    assert claims.difference(claim("trec-methods", *other), none, none) is None


def test_a_difference_that_a_comparison_did_not_store_is_made_of_its_rows() -> None:
    """sst2-smollm2 stored pairs against the best arm alone, which is neither of these."""
    found = {arm["name"]: arm["runs"] for arm in read("sst2-smollm2")["arms"]}
    names = "prefix @ 276,480", "lora @ 276,480"
    assert not [one for one in read("sst2-smollm2")["comparisons"] if {one["a"], one["b"]} == set(names)]
    by_seed = [{run["seed"]: run["test"]["accuracy"] for run in found[name]} for name in names]
    common = set(by_seed[0]) & set(by_seed[1])
    less = compared("sst2-smollm2", *names)
    assert less is not None and less[1][0] > 0
    assert less[0] == pytest.approx(fmean(by_seed[0][seed] - by_seed[1][seed] for seed in common))


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
    assert (
        claims.bullet(one)
        == "- A is above B: **holds**, 46.7 [39.2, 54.3] to 28.7 [25.3, 32.2], by +18.0 [+13.1, +22.9] (M)."
    )


def test_a_number_without_a_seed_stands_beside_every_seed_where_the_claim_says_so() -> None:
    more, bare = Number(3.0, None, values=(2.0, 3.0, 4.0)), Number(1.0, None, values=(1.0,))
    one = claim("anchors-smollm2", ("a", "c"), ("b", "c"))
    assert claims.difference(one, more, bare) is None
    fixed = replace(one, fixed=True)
    assert claims.difference(fixed, more, bare) == claims.difference(one, more, replace(bare, values=(1.0,) * 3))
    assert all(number(each.file, *each.below).interval is None for each in claims.read() if each.fixed)


def test_what_something_else_explains_cannot_be_told_and_says_why() -> None:
    one = claim("prefix-main", ("full tuning", "bleu"), ("LoRA, 2 %", "bleu"))
    assert claims.outcome(one) == claims.HOLDS
    other = replace(one, but="they are of two models")
    assert claims.outcome(other) == claims.UNTOLD
    assert claims.bullet(other) == (
        "- A is above B: **cannot be told at this size**, 46.7 [39.2, 54.3] to 28.7 [25.3, 32.2], "
        "but they are of two models (M)."
    )


def test_an_explanation_takes_a_claim_that_holds_away_and_hides_none_that_does_not() -> None:
    one = claim("prefix-main", ("LoRA, 2 %", "bleu"), ("full tuning", "bleu"))
    assert claims.outcome(one) == claims.OTHER_WAY
    with pytest.raises(ValueError, match="its numbers do not hold"):
        claims.outcome(replace(one, but="it learned too little"))


def test_the_counts_are_of_all_claims() -> None:
    counted = [int(one) for one in re.findall(r"\d+", claims.counts())]
    assert counted[0] == sum(counted[1:5]) == len(claims.read())
    assert counted[5] == sum(bool(one.but) for one in claims.read())


def test_a_cell_that_there_is_not_is_no_claim() -> None:
    with pytest.raises(KeyError, match="no such row"):
        number("prefix-main", "no such row", "bleu")
