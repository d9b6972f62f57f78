"""Successive halving: what goes on is a run like any other, what has lost stops and is told, nothing runs twice."""

import json
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from safetensors.torch import load_file

import tunescope as ts
from tunescope.comparison import halving, pilot
from tunescope.comparison.comparison import compare
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial import rates
from tunescope.trial.command import command
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.train.settings import Settings

ARMS = ("prefix:length=3", "lora:rank=2", "zero-shot")
RATES = (1e-6, 3e-2, 1e-5)


def plan(rates: int, steps: int = 90, every: int = 5) -> Plan:
    settings = Settings(steps=steps, eval_every=every)
    return Plan(model="m", data={"train": "t"}, task={}, trials=rates, settings=settings, halving=True, beyond=0)


def test_the_rungs_are_thirds_at_steps_that_are_scored() -> None:
    assert rates.rungs(plan(2).race) == rates.rungs(plan(3).race) == [(30, 1)]
    assert rates.rungs(plan(4).race) == [(10, 2), (30, 1)]
    assert rates.rungs(plan(9).race) == [(10, 3), (30, 1)]
    assert rates.rungs(plan(3, every=40).race) == [(40, 1)]
    assert rates.rungs(plan(9, every=30).race) == [(30, 1)]
    assert rates.trial_steps(plan(3).race) == [30, 30, 90]
    assert rates.trial_steps(plan(4).race) == [10, 10, 30, 90]
    assert rates.halving_rule(plan(4).race) == (
        "at step 10 the best 2 of 4 learning rates go on; at step 30 the best 1 of 4 learning rates go on"
    )


def ran(folder: Path, name: str, **options: Any) -> Any:
    inside = folder / "model"
    if not inside.exists():
        tinyrun.write(folder)
    data = {part: str(folder / f"{part}.jsonl") for part in ("train", "dev", "test")}
    given: dict[str, Any] = {
        "arms": ARMS,
        "task": Classification(words={"neg": "bad", "pos": "good"}),
        "settings": Settings(steps=12, batch_size=8, eval_every=4, patience=9),
        "learning_rates": RATES,
        "beyond": 0,
        "seeds": 2,
        "out": folder / name,
        "quiet": True,
    }
    return compare(str(inside), data, **(given | options))


def runs(found: Any) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(found.folder.glob("arms/*/result.json"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("halving")


@pytest.fixture(scope="module")
def whole(folder: Path) -> Any:
    return ran(folder, "whole")


@pytest.mark.parametrize("how", [{}, {"workers": 2}, {"together": 4}, {"workers": 2, "together": 0}])
def test_what_goes_on_is_the_run_that_it_would_have_been(folder: Path, whole: Any, how: dict[str, int]) -> None:
    found = ran(folder, "halved" + "-".join(map(str, how.values())), halving=True, **how)
    every, halved = runs(whole), runs(found)
    lost = {name for name, run in halved.items() if run["status"] == "lost"}
    assert len(lost) == 4 and halved.keys() <= every.keys()
    for name, run in halved.items():
        if name in lost:
            assert [point["step"] for point in run["curve"]] == [4]
            assert run["reason"] == "stopped at step 4 of 12: other learning rates were better"
        else:
            assert [point["step"] for point in run["curve"]] in ([4, 8, 12], [])  # zero-shot has none
        for mine, theirs in zip(run["curve"], every[name]["curve"], strict=False):
            assert mine["dev"] == theirs["dev"] and mine["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        path = Path("arms") / name / "artifact" / "tensors.safetensors"
        if (found.folder / path).exists() and "together" not in how:
            ours, theirs_too = load_file(found.folder / path), load_file(whole.folder / path)
            assert all(bool((ours[key] == value).all()) for key, value in theirs_too.items())
    arms = {arm["name"]: arm for arm in found.results["arms"]}
    assert sorted(trial["status"] for trial in arms["lora:rank=2"]["trials"]) == ["done", "lost", "lost"]
    assert found.results["protocol"]["halving"] == "at step 4 the best 1 of 3 learning rates go on"
    assert found.results["protocol"]["trials_per_arm"] == 3 and not list(found.folder.glob("arms/*.tmp-*"))
    assert "--halving" in found.results["command"]


def test_each_arm_goes_on_with_the_best_at_the_rung(folder: Path, whole: Any) -> None:
    found = ran(folder, "halved", halving=True)
    for arm in found.results["arms"]:
        if arm["trials"]:
            curves = {run["learning_rate"]: run["curve"][0] for run in runs(whole).values() if run_of(run, arm)}
            best = max(curves, key=lambda rate: (curves[rate]["dev"], -curves[rate]["loss"]))
            assert arm["learning_rate"] == best


def run_of(run: dict[str, Any], arm: dict[str, Any]) -> bool:
    return run["seed"] == 0 and run["spec"].startswith(arm["name"].partition(":")[0])


def test_a_finished_race_is_not_run_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(folder, "halved", halving=True)
    monkeypatch.setattr("tunescope.comparison.run.train", lambda *_, **__: pytest.fail("trained again"))
    again = ran(folder, "halved", halving=True)
    assert again.results["arms"] == found.results["arms"]


def test_two_arms_of_one_spec_share_a_run_that_stops_once(folder: Path) -> None:
    found = ran(folder, "alike", halving=True, arms=("one=lora:rank=2", "two=lora:rank=2"), seeds=1)
    one, two = found.results["arms"]
    assert one["trials"] == two["trials"] and [run["test"] for run in one["runs"]] == [
        run["test"] for run in two["runs"]
    ]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (plan(1), "--halving has no effect on one learning rate; give more with --trials or --lr"),
        (plan(3, every=90), "--halving has no effect with --eval-every 90: a third of 90 steps has no score. Type: "),
        (plan(3, steps=1, every=1), "no effect on one step: .* Type: --steps 3, or"),
    ],
)
def test_a_race_in_which_nothing_stops_is_refused(made: Plan, told: str) -> None:
    with pytest.raises(ts.UserError, match=told):
        check(made)


def test_a_pilot_has_short_trials_already() -> None:
    with pytest.raises(ts.UserError, match="--halving has no effect in a pilot"):
        pilot.piloted(plan(3))
    assert command(plan(3)).count("--halving") == 1


def test_of_rates_with_one_score_the_one_with_the_lower_loss_at_the_rung_goes_on() -> None:
    """What it had before, and what a run that was gone on with had after, is not asked."""
    losses = {"ahead early": (1.0, 3.0, 0.0), "ahead now": (2.0, 1.5, 9.0)}
    merits = {
        name: halving._merit(
            {"curve": [{"step": 5 * at, "dev": 0.5, "loss": loss} for at, loss in enumerate(every, 1)]}, 10
        )
        for name, every in losses.items()
    }
    assert max(merits, key=merits.__getitem__) == "ahead now" and merits["ahead now"] == (0.5, -1.5)
