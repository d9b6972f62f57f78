"""Tables of Petrov et al. without their training: which rows are learned and which are scored, by which seed."""

import numpy as np
import pytest

from tunescope.lab.worlds.skills import find as skill_of
from tunescope.lab.worlds.world import part_of
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import find

SEEN = ("ascending", "descending", "add1", "add2")
TABLES = {  # what is pretrained on, and what the prefixes are taught
    "petrov-table1": (("ascending",), {"descending"}),
    "petrov-table2": (SEEN, set(SEEN)),
    "petrov-table3": (SEEN, {*SEEN, "ascending_add1", "double_histogram"}),
    "petrov-lora": (SEEN, {"double_histogram"}),
}


@pytest.fixture
def worked(monkeypatch, tmp_path):
    """A recipe's settings, and what each of its pieces gave to `adapted`: (unit, lesson, tests, course, seed)."""

    def of(name, quick=True):
        recipe, given = find(name), []
        monkeypatch.setattr(recipe, "ROWS", 40)
        monkeypatch.setattr(recipe, "pretrained", lambda world: None)
        monkeypatch.setattr(recipe, "unadapted", lambda *_: {}, raising=False)
        settings = recipe.settings(Ask(name, quick=quick, seeds=2)) | {"test_rows": 20}
        for unit in recipe.units(settings):
            monkeypatch.setattr(
                recipe,
                "adapted",
                lambda model, arm, lesson, tests, course, seed, folder, unit=unit: (
                    given.append((unit, lesson, tests, course, seed)) or {}
                ),
            )
            recipe.work(settings, unit, tmp_path)
        return settings, given

    return of


def parts(rows):
    """Which parts the inputs of rows are of, an input and an answer of one length each."""
    return {part_of(row[: len(row) // 2]) for row in np.asarray(rows)}


def answers(skill, rows):
    inputs, written = np.split(np.asarray(rows), 2, axis=1)
    return np.array_equal(skill_of(skill)(inputs), written)


@pytest.mark.parametrize("name", TABLES)
def test_what_is_learned_is_of_the_training_part_and_what_is_scored_of_the_test_part(name, worked):
    settings, given = worked(name)
    known, taught = TABLES[name]
    assert {world.curriculum.skills for world in find(name).worlds(settings)} == {known}
    found = set()
    for unit, lesson, tests, _, _ in given:
        assert parts(lesson.train) == {"train"} and parts(lesson.dev) == {"dev"}
        found |= {skill for skill in taught if answers(skill, lesson.train)}
        assert answers(unit.get("skill", next(iter(taught))), lesson.train)
        for skill, rows in tests.items():
            assert parts(rows) == {"test"} and answers(skill, rows) and len(rows) == 20
    assert found == taught


@pytest.mark.parametrize("name", TABLES)
def test_a_seed_draws_what_is_learned_and_how_and_the_test_rows_are_those_of_every_seed(name, worked):
    _, given = worked(name)
    assert all(seed == unit["seed"] for unit, *_, seed in given)
    lessons, tested = {}, {}
    for unit, lesson, tests, _, seed in given:
        lessons.setdefault(unit.get("skill"), {})[seed] = lesson.train.tolist()
        tested.setdefault(str({skill: rows.tolist() for skill, rows in tests.items()}), set()).add(seed)
    assert all(both[0] != both[1] for both in lessons.values()) and [*tested.values()] == [{0, 1}]


def test_new_skills_of_table_3_are_taught_for_longer_than_those_that_were_seen(worked):
    settings, given = worked("petrov-table3", quick=False)
    steps = {unit["skill"]: course.settings.steps for unit, _, _, course, _ in given}
    plans = settings["plans"]
    assert {skill: steps[skill] for skill in SEEN} == dict.fromkeys(SEEN, plans["seen"]["steps"])
    assert steps["double_histogram"] == steps["ascending_add1"] == plans["new"]["steps"] > plans["seen"]["steps"]
