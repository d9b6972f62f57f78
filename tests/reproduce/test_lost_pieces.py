"""A piece that lost a seed or ran out of memory: that is no score, and where it may help it is tried again."""

import math
from types import SimpleNamespace

import pytest
import tinyrun
from tiny_corpora import e2e

from tunescope.comparison import comparison
from tunescope.reproduce import corpus_line, piece
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import find
from tunescope.reproduce.recipes import chain_of_thought_model as steps
from tunescope.reproduce.recipes import unified_forms


@pytest.mark.parametrize("name", ["reweight", "lm-bff"])
@pytest.mark.parametrize(("status", "lasts"), [("out of memory", False), ("failed", False), ("diverged", True)])
def test_a_piece_with_an_arm_that_another_attempt_might_score_is_tried_again(
    name, status, lasts, tmp_path, monkeypatch
):
    def compare(*_, arms, **__):
        told = {"reason": "so", "learning_rate": None, "runs": [], "remarks": []}
        ended = dict.fromkeys(arms, "done") | {arms[-1]: status}
        found = [{"name": arm, "spec": arm, "status": how} | told for arm, how in ended.items()]
        return SimpleNamespace(results={"arms": found})

    monkeypatch.setattr(comparison, "compare", compare)
    folder, _ = tinyrun.write(tmp_path)
    asked = {"template": "{text} Label:", "words": ("negative=neg,positive=pos",)}
    recipe = find(name)
    settings = recipe.settings(Ask(name, quick=True, model=folder, data=tinyrun.sst2(tmp_path / "sst2"), **asked))
    (tmp_path / "units").mkdir()
    path = piece.path(tmp_path, "x")
    piece.unit(name, settings, recipe.units(settings)[0], path)
    assert path.exists() == lasts and piece.passing(path).exists() != lasts


def arm(name, scores, status="done", reason=""):
    runs = [{"id": "", "test": {"exact_match": score}, "reading": {"unread": 0.0}} for score in scores]
    return {"name": name, "status": status, "reason": reason, "learning_rate": 0.1, "trials": [], "runs": runs}


def test_steps_of_which_a_seed_is_lost_have_no_gain_for_it_would_pair_other_seeds(tmp_path, monkeypatch):
    """Two of three seeds are left, and their runs do not say which; 0.5 - 0.9 would be of seeds 1 and 0."""
    monkeypatch.setattr(steps, "_tokens", lambda *_: (1.0, 3.0))
    monkeypatch.setattr(steps, "_digits", lambda *_: 0.0)
    model = tinyrun.write(tmp_path)[0]
    settings = steps.settings(Ask("chain-of-thought-model", quick=True, model=model, seeds=3))
    by_way = {steps.PROMPTED: [arm(name, (0.2, 0.4, 0.3)) for name in steps.ARMS[steps.PROMPTED]]}
    by_way |= {way: [arm("lora", (0.9, 0.5, 0.1))] for way in (steps.ONCE, steps.TOKENS)}
    by_way[steps.STEPS] = [arm("cot+lora", (0.5, 0.1), "diverged", "seed 0: loss is nan")]
    found = []
    for unit in steps.units(settings):
        monkeypatch.setattr(steps, "_compared", lambda *_, way=unit["way"]: {one["name"]: one for one in by_way[way]})
        found.append((unit, steps.work(settings, unit, tmp_path / unit["way"])))
    cells = dict(zip(steps.table(settings, found).columns, steps.table(settings, found).rows[0][1], strict=True))
    assert cells["tuned with steps"].values == () and cells["tuned with steps"].text == "seed 0: loss is nan"
    assert cells["gain"].values == () and cells["as many tokens"].values == (0.9, 0.5, 0.1)


@pytest.mark.parametrize(
    ("status", "scores", "failed"), [("out of memory", (), ""), ("diverged", (8.0, 0.0, 8.0), "1 of 3")]
)
def test_a_seed_without_room_has_not_diverged(status, scores, failed, tmp_path, monkeypatch):
    def compared(settings, unit, folder, given):
        if settings["seeds"] == [1]:
            return corpus_line.REFUSED | {"status": status, "reason": "so"}
        run = {"id": "", "dev": 8.0, "test": dict.fromkeys(settings["metrics"], 8.0)}
        sizes = {"parameters": {"trained": 1, "stored": 7, "live": 1}}
        return arm("prefix", ()) | {"told": [], "runs": [run]} | sizes

    monkeypatch.setattr(corpus_line, "compared", compared)
    recipe, (folder, _) = find("prefix-network"), tinyrun.write(tmp_path)
    settings = recipe.settings(Ask("prefix-network", model=folder, data=e2e(tmp_path / "e2e"), seeds=3))
    settings["lines"] = settings["lines"][:1]
    unit = recipe.units(settings)[0]
    found = recipe.work(settings, unit, tmp_path)
    assert found["status"] in piece.LASTING or not scores
    cells = recipe.table(settings, [(unit, found)]).rows[0][1]
    assert cells[1].values == scores and cells[3].text == failed and cells[1].text == ("" if scores else "so")


@pytest.mark.parametrize("order", [1, -1])
def test_a_form_that_comes_out_as_no_number_in_one_family_is_told_as_that(order):
    arms, families = {"prefix-tuning": "prefix:length=5"}, [("gpt2", 1e-15), ("llama", math.nan)][::order]
    found = [({"family": name}, {"arms": {"prefix-tuning": {"all": [one, 1.0]}}}) for name, one in families]
    rows = dict(unified_forms.table({"arms": arms}, found).rows)
    assert math.isnan(rows["prefix-tuning"][5].values[0]) and rows["gpt2"][5].values == (1e-15,)
