"""Table 1 below its quick size: the direction of the effect, with its interval; the numbers published in Table 3."""

import pytest

from tunescope.report.cells import Cell
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import find
from tunescope.reproduce.recipes import petrov_table3
from tunescope.reproduce.run import reproduce

# Arm -> its steps and those of a trial: enough for the effect; in Table 1 what is not to learn has more than what is.
TABLE = {"pretraining": (700, 0), "full": (250, 50), "inputs:length=1": (400, 60)}


@pytest.fixture
def run(tmp_path, monkeypatch, in_process):
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path / "cache"))

    def of(name):
        result = reproduce(Ask(name, quick=True), tmp_path / "run", workers=1, say=lambda line: None)
        return [(piece["unit"], piece["outcome"]) for piece in result["units"]]

    return of


@pytest.fixture
def shorter(monkeypatch):
    """The arms of a recipe are trained for so many steps."""

    def of(name, steps, **constants):
        recipe = find(name)
        whole = recipe.settings

        def fewer(ask):
            made = whole(ask)
            for arm, plan in made["plans"].items():
                plan["steps"], plan["trial"] = steps[arm]
            return made

        for constant, value in ({"settings": fewer} | constants).items():
            monkeypatch.setattr(recipe, constant, value)

    return of


def test_of_table_3_every_cell_is_published_and_no_prefix_gives_another_skill_than_its_own():
    pretrained, *prefixes = petrov_table3.PAPER.values()
    assert pretrained == (".17", ".23", ".34", ".25", "0", "0")
    own = ("1.00", "1.00", "1.00", "1.00", ".93", ".01")
    assert prefixes == [tuple(own[i] if i == j else "0" for j in range(6)) for i in range(6)]


@pytest.mark.slow
def test_full_tuning_learns_to_sort_down_and_a_prefix_does_not(run, shorter):
    shorter("petrov-table1", TABLE)
    found = [outcome for _, outcome in run("petrov-table1")]
    asked = {arm: Cell.of(found, arm, "exact", "descending") for arm in ("pretrained", "full", "inputs:length=1")}
    assert Cell.of(found, "pretrained", "exact", "ascending").interval[0] > 0.9
    assert asked["full"].interval[0] > 0.8
    assert asked["inputs:length=1"].interval[1] < 0.05
    assert asked["pretrained"].interval[1] < 0.05
