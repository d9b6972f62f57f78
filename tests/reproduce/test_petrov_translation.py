"""The translation recipe at the size of a test: what it runs without a file, with one, and the paper's direction."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunescope.errors import UserError
from tunescope.lab.worlds.dictionary import synthetic
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.methods.text_form import parse
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check
from tunescope.reproduce.recipes import petrov_translation as recipe
from tunescope.trial.budget import count

QUICK = Ask("petrov-translation", quick=True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESCOPE_CACHE", str(tmp_path / "cache"))


def test_the_arms_that_are_called_equal_are_equal() -> None:
    """By the tensors that attaching makes, at any rank; the last has four times as many."""
    for rank in (1, 4):
        model = gpt2(Shape(2, 4, 48), 27, 16, seed=0)
        _, _, *equal, larger = recipe.arms(rank)
        assert [count(model, parse(arm)).trained for arm in equal] == [12 * rank * 2 * 48] * 3
        assert count(model, parse(larger)).trained == 4 * 12 * rank * 2 * 48


def test_without_a_file_the_words_are_synthetic_and_the_table_says_so() -> None:
    found = recipe.settings(QUICK)
    assert found["dictionary"] == "synthetic" and found["words"] == 50
    notes = " ".join(recipe.table(found, []).notes)
    assert "SYNTHETIC" in notes and "--data FILE" in notes and "facebookresearch/MUSE" in notes


def test_a_file_is_named_and_none_of_its_words_are_kept_in_the_settings(tmp_path: Path) -> None:
    words = synthetic(30, seed=7).words
    path = tmp_path / "words.tsv"
    path.write_text("\n".join(["en\tde\tes", *("\t".join(row) for row in words)]))
    found = recipe.settings(replace(QUICK, data=str(path)))
    assert found["dictionary"] == "words.tsv" and found["words"] == 30
    text = json.dumps(found) + " ".join(recipe.table(found, []).notes)
    assert str(tmp_path) not in text and not any(word in text for row in words for word in row)
    assert "SYNTHETIC" not in text


def test_what_it_does_not_take_is_refused() -> None:
    with pytest.raises(UserError, match="has no use for --protocol; it takes --data, --quick, --seeds"):
        check(Ask("petrov-translation", protocol="paper"), recipe)
    with pytest.raises(UserError, match="there is no such file"):
        recipe.settings(replace(QUICK, data="nowhere.tsv"))


WANTED = ("pretrained", "full", "prefix:length=24", "lora:rank=4,sites=attn.o,ffn.in,ffn.out")


def ran(steps: int, folder: Path) -> tuple[Any, list[Any]]:
    settings = recipe.settings(QUICK) | {"shape": [2, 4, 32], "equal_parameters": 12 * 4 * 2 * 32}
    for plan in settings["plans"].values():
        plan["steps"] = steps
    units = [unit for unit in recipe.units(settings) if unit["arm"] in WANTED]
    return settings, [(unit, recipe.work(settings, unit, folder / str(i))) for i, unit in enumerate(units)]


def test_each_arm_is_a_row_with_its_parameters(tmp_path: Path) -> None:
    settings, found = ran(2, tmp_path)
    table = recipe.table(settings, found)
    assert [label for label, _ in table.rows] == [recipe.arms(4)[arm] for arm in WANTED]
    assert table.rows[2][1][0].text == table.rows[3][1][0].text == "3,072"


@pytest.mark.slow
def test_full_tuning_and_lora_learn_spanish_and_a_prefix_of_equal_size_learns_less(tmp_path: Path) -> None:
    before, full, prefix, lora = (outcome["exact"] for _, outcome in ran(200, tmp_path)[1])
    assert before["de"] >= 0.9 and before["es"] == 0.0
    assert full["es"] >= 0.9 and full["es"] > prefix["es"]
    assert lora["es"] > prefix["es"]


def test_prefixes_are_trained_for_three_times_the_steps_of_the_others() -> None:
    for quick in (True, False):
        plans = recipe.settings(replace(QUICK, quick=quick))["plans"]
        steps = {arm: plan["steps"] for arm, plan in plans.items() if arm != "pretraining"}
        prefixes = {steps.pop(arm) for arm in [*steps] if arm.startswith(("inputs", "prefix"))}
        assert prefixes == {3 * one for one in steps.values()} and len(steps) == 2
