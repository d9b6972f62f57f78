"""Every method on every family, as the table in docs/families.md has it: it works, and rightly, or says why not."""

import json
from pathlib import Path

import pytest
from family_trials import FAMILIES, trials

RESULT = json.loads((Path(__file__).parents[2] / "results" / "families.json").read_text("utf-8"))
TABLE, BUILT_AS = RESULT["families"], RESULT["built_as"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The first family of each build; those of --families, whichever they are."""
    if "family" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--families")
        metafunc.parametrize("family", FAMILIES if asked else dict.fromkeys(BUILT_AS.values()))


def test_each_method_does_what_the_table_says(family: str) -> None:
    assert trials(family) == TABLE[family]


def test_the_table_has_the_families_that_are_tried() -> None:
    assert set(TABLE) == set(BUILT_AS) == set(FAMILIES)
