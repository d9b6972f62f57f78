"""The quick size, run whole: steps are needed for hops and not for plus one; and its table, at once."""

import pytest
from conftest import smaller

from tunescope.reproduce.recipe import Ask, find
from tunescope.reproduce.run import reproduce


def ran(folder, patch, **size):
    smaller(patch, find("chain-of-thought"), **size)
    return reproduce(Ask("chain-of-thought", quick=True), folder / "run", workers=1, say=lambda line: None)


def test_its_last_column_is_what_steps_gain_over_as_many_tokens(tmp_path, in_process, monkeypatch):
    result = ran(tmp_path, monkeypatch, rows=64, test_rows=40, steps=2)
    found = {tuple(piece["unit"][key] for key in ("procedure", "arm", "seed")): piece for piece in result["units"]}
    answers = {key: piece["outcome"]["answer"] for key, piece in found.items()}
    rows = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    gains = [answers["hops", "steps", seed] - answers["hops", "tokens", seed] for seed in (0, 1)]
    assert rows["hops three times, 1 layer"][-1]["values"] == gains and len(found) == len(result["units"])


@pytest.mark.slow
def test_steps_are_what_a_layer_needs_to_hop_and_not_to_add(tmp_path, in_process, monkeypatch):
    result = ran(tmp_path, monkeypatch, rows=2**13, test_rows=250)
    found = {
        (unit["procedure"], unit["arm"], unit["seed"]): outcome
        for unit, outcome in ((piece["unit"], piece["outcome"]) for piece in result["units"])
    }
    for seed in (0, 1):
        assert all(found["plus-one", arm, seed]["answer"] > 0.95 for arm in ("at once", "tokens", "steps"))
        assert found["hops", "steps", seed]["answer"] > 0.9
        assert found["hops", "tokens", seed]["answer"] < 0.6
        assert found["hops", "tokens", seed]["tokens"] == found["hops", "steps", seed]["tokens"]
        assert found["hops", "steps", seed]["all"] <= found["hops", "steps", seed]["answer"]


def test_every_arm_has_the_same_seeds_and_the_whole_size_has_more_of_all():
    recipe = find("chain-of-thought")
    whole, quick = (recipe.settings(Ask("chain-of-thought", quick=each)) for each in (False, True))
    units = recipe.units(whole)
    assert len(units) == 5 * 5 * 3 and len({str(unit) for unit in units}) == len(units)
    assert all(whole[key] > quick[key] for key in ("seeds", "steps", "rows", "test_rows"))
