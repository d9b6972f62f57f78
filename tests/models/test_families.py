"""Every method on every family, as the table in docs/families.md has it: it works, and rightly, or says why not."""

import json
from pathlib import Path

import pytest
from family_trials import FAMILIES, trials

TABLE = json.loads((Path(__file__).parents[2] / "results" / "families.json").read_text("utf-8"))["families"]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_method_does_what_the_table_says(family: str) -> None:
    assert trials(family) == TABLE[family]


def test_the_table_has_the_families_that_are_tried() -> None:
    assert set(TABLE) == set(FAMILIES)
