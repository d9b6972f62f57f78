"""Seeds are added to the two arms that decide, while there is no verdict."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunescope.comparison import comparison, interim_looks, results, shared_passes
from tunescope.comparison.standing import Standing
from tunescope.errors import UserError
from tunescope.report.verdict import stats
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.plan_json import from_json


def test_seeds_added_later_follow_those_that_every_arm_has():
    assert Plan(seeds=(0, 4), max_seeds=5).every_seed == (0, 4, 5, 6, 7)
    assert Plan(seeds=(0, 4)).every_seed == (0, 4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_seeds": 2}, r"--max-seeds 2 is below the 3 seeds that every arm has; give 3 or more"),
        ({"max_seeds": 6, "k_shot": 4}, r"--max-seeds adds seeds later, and with --k-shot every seed draws its rows"),
        ({"minutes": 0.0}, r"--minutes 0 is no time; give more than 0, or leave it out"),
        ({"margin": 0.0}, r"--margin 0 is a share of the metric's scale above 0 and below 1, such as 0.02"),
    ],
)
def test_what_cannot_be_looked_at_is_told_in_one_line(fields, message):
    with pytest.raises(UserError, match=message):
        check(Plan(**fields))


def arm_of(seconds: float, more: int = 0, varies: bool = True) -> Any:
    return SimpleNamespace(runs=[{"seconds": seconds}, {"seconds": 3 * seconds}] * (more + 1), varies=varies)


def test_seeds_are_added_while_their_end_lies_within_the_minutes(monkeypatch):
    monkeypatch.setattr(interim_looks.time, "monotonic", lambda: 100.0)
    clock = interim_looks.Clock(start=40.0, workers=2)  # 60 s ago
    arms = [arm_of(5.0), arm_of(10.0)]  # 10 and 20 s a seed
    assert clock.allows(None, arms, 10**6)
    assert clock.allows(1.75, arms, 5) and not clock.allows(1.74, arms, 5)  # 3 more of 30 s, two at once: 45 s


def test_the_time_for_more_seeds_is_of_those_that_each_arm_lacks(monkeypatch):
    monkeypatch.setattr(interim_looks.time, "monotonic", lambda: 100.0)
    clock = interim_looks.Clock(start=40.0, workers=1)
    arms = [arm_of(5.0), arm_of(10.0, more=1), arm_of(900.0, varies=False)]  # 2, 4 and all that there is
    assert clock.allows(1 + 50 / 60, arms, 5)  # 3 more of 10 s, one of 20 s
    assert not clock.allows(1 + 49 / 60, arms, 5)


def test_where_time_is_up_no_seeds_are_added_which_is_told_and_a_resume_goes_on(question, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    asked(question, folder, monkeypatch, [False])
    monkeypatch.setattr(interim_looks, "decide", lambda results: decide(results) | {"more_seeds": True})
    found = comparison.resume(folder, minutes=1e-9, quiet=True).results
    assert found["protocol"]["looks"] == {"planned": [3, 6], "at": 3, "deciding": [], "out_of_time": 1e-9}
    assert all(len(arm["runs"]) <= 3 for arm in found["arms"])
    assert found["verdict"]["run"].endswith("no more seeds could be run: `tunescope resume RUN` goes on with them.")

    more = comparison.resume(folder, quiet=True).results
    assert more["protocol"]["looks"]["at"] == 6


@pytest.fixture
def question(tmp_path) -> Plan:
    from tunescope.lab import demo

    setup = demo.prepare(tmp_path / "data")
    task = setup.tasks[0]
    rows = {part: tmp_path / f"{part}.jsonl" for part in ("train", "dev", "test")}
    for part, path in rows.items():
        path.write_text("".join(task[part].read_text().splitlines(keepends=True)[:24]))  # type: ignore[literal-required]
    plan = Plan(
        model=str(setup.model),
        data={part: str(path) for part, path in rows.items()},
        task={"kind": "generation"},
        arms=("zero-shot", "prefix:length=2", "lora:rank=1"),
        rates=(1e-3,),
        max_seeds=6,
    )
    return replace(plan, settings=replace(plan.settings, steps=2, batch_size=4, eval_every=1))


decide = interim_looks.decide


def asked(question: Plan, folder: Path, monkeypatch: Any, more: list[bool]) -> dict[str, Any]:
    """results.json, where each look in turn hears whether more seeds may help."""
    monkeypatch.setattr(interim_looks, "decide", lambda results: decide(results) | {"more_seeds": more.pop(0)})
    return dict(comparison.ask(question, folder, quiet=True).results)


def test_the_two_arms_that_decide_get_more_seeds_and_no_other(question, tmp_path, monkeypatch):
    found = asked(question, tmp_path / "run", monkeypatch, [True])
    seeds = {arm["name"]: [run["seed"] for run in arm["runs"]] for arm in found["arms"]}
    assert seeds == {"zero-shot": [0], "prefix:length=2": [0, 1, 2, 3, 4, 5], "lora:rank=1": [0, 1, 2, 3, 4, 5]}
    deciding = ["prefix:length=2", "lora:rank=1"]
    assert found["protocol"]["looks"] == {"planned": [3, 6], "at": 6, "deciding": deciding}
    assert found["protocol"]["seeds"] == [0, 1, 2]


def test_where_seeds_do_not_help_none_are_added_and_a_resume_with_more_goes_on(question, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    found = asked(question, folder, monkeypatch, [False])
    assert found["protocol"]["looks"] == {"planned": [3, 6], "at": 3, "deciding": []}
    before = {path: path.stat().st_mtime_ns for path in (folder / "arms").glob("*/result.json")}

    monkeypatch.setattr(interim_looks, "decide", lambda results: decide(results) | {"more_seeds": True})
    more = comparison.resume(folder, max_seeds=4, quiet=True).results

    assert more["protocol"]["looks"]["planned"] == [3, 4]
    assert [run["seed"] for run in more["arms"][1]["runs"]] == [0, 1, 2, 3]
    after = {path: path.stat().st_mtime_ns for path in (folder / "arms").glob("*/result.json")}
    assert before.items() < after.items()  # what was run is not run again
    assert from_json(json.loads((folder / "config.json").read_text()), folder / "config.json").max_seeds == 4


def test_seeds_that_were_added_stay_when_the_first_command_is_typed_again(question, tmp_path, monkeypatch):
    folder, first = tmp_path / "run", replace(question, max_seeds=None)
    comparison.ask(first, folder, quiet=True)
    monkeypatch.setattr(interim_looks, "decide", lambda results: decide(results) | {"more_seeds": True})
    more = comparison.resume(folder, max_seeds=4, quiet=True).results
    again = comparison.ask(first, folder, quiet=True).results
    assert [run["seed"] for run in again["arms"][1]["runs"]] == [0, 1, 2, 3]
    assert again["protocol"]["looks"] == more["protocol"]["looks"]
    with pytest.raises(UserError, match="holds another comparison"):
        comparison.ask(replace(first, seeds=(0, 1)), folder, quiet=True)


def test_an_arm_that_was_best_at_few_seeds_and_fails_at_more_gives_way(question, tmp_path, monkeypatch):
    """Two contexts, told apart by dev scores that are put in: the first is ahead at three seeds, behind at six."""
    plan = replace(question, arms=("prefix:length=2", "soft:length=2", "lora:rank=1"))
    put = {"prefix:length=2": (1.0, 1.0, 1.0, 0.1, 0.1, 0.1), "soft:length=2": (0.9,) * 6}

    def assembled(bench: Any, standings: Any, *rest: Any) -> dict[str, Any]:
        for one in standings:
            for run in one.runs:
                run["dev"] = put.get(one.name, (0.95,) * 6)[run["seed"]]
        return assemble(bench, standings, *rest)

    assemble = interim_looks.assemble
    monkeypatch.setattr(interim_looks, "assemble", assembled)
    found = asked(plan, tmp_path / "run", monkeypatch, [True])
    assert found["protocol"]["looks"]["deciding"] == ["soft:length=2", "lora:rank=1"]
    assert {arm["name"]: len(arm["runs"]) for arm in found["arms"]} == dict.fromkeys(plan.arms, 6)
    assert found["best"] == {"arm": "lora:rank=1", "path": "best"}  # of all, with the seeds that were added
    assert {one["b"] for one in found["comparisons"]} == {"lora:rank=1"}
    tensors = (tmp_path / "run" / "best" / "tensors.safetensors").read_bytes()
    kept = [tmp_path / "run" / "arms" / run["id"] / "artifact" for run in found["arms"][2]["runs"]]
    assert tensors in [(path / "tensors.safetensors").read_bytes() for path in kept]


def test_added_seeds_share_passes_as_the_first_ones_were_measured_to_which_is_noted_once(
    question, tmp_path, monkeypatch
):
    sizes = []

    def size(bench: Any, jobs: Any) -> tuple[int, str]:
        sizes.append(len(jobs))
        return 2, "two"

    monkeypatch.setattr(shared_passes, "best_size", size)
    found = asked(replace(question, together=0), tmp_path / "run", monkeypatch, [True])
    assert len(sizes) == 1
    paths = [tmp_path / "run" / "arms" / run["id"] / "result.json" for run in found["arms"][1]["runs"]]
    assert [json.loads(path.read_text()).get("together") for path in paths[3:]] == [None, 2, 2]  # one's was done
    assert all(arm["budget_note"].count("shared passes") == 1 for arm in found["arms"][1:])


def test_the_one_run_of_a_trained_arm_is_paired_with_one_run_and_that_of_the_model_as_it_is_with_all():
    def standing(name: str, seeds: int, **fields: Any) -> Standing:
        rows = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        return Standing(name, runs=[{"seed": s, "dev": 0.5, "stats": rows} for s in range(seeds)], **fields)

    best, zero = standing("lora", 3), standing("zero-shot", 1, varies=False)
    found = results._comparisons([zero, standing("full", 1), best], best, stats.scorer("accuracy"), None, None)
    assert {one["a"]: one["seeds"] for one in found} == {"zero-shot": 3, "full": 1}


def test_of_equal_development_scores_the_lower_training_loss_decides():
    def arm(name: str, loss: float) -> dict[str, Any]:
        runs = [{"seed": 0, "dev": 1.0, "test": {"accuracy": 1.0}, "curve": [{"step": 1, "loss": loss, "dev": 1.0}]}]
        return {"name": name, "group": "context", "status": "done", "score": 1.0, "runs": runs}

    results = {"task": {"metric": "accuracy"}, "arms": [arm("soft", 0.01), arm("prefix", 0.001), arm("infix", 0.1)]}
    assert interim_looks.best_of_each(results) == ["prefix"]


def test_what_is_kept_for_the_page_is_left_when_seeds_are_added(monkeypatch):
    monkeypatch.setattr(interim_looks.time, "monotonic", lambda: 100.0)
    clock = interim_looks.Clock(start=40.0, workers=2, kept=15.0)
    arms = [arm_of(5.0), arm_of(10.0)]  # 45 s for 3 more seeds, as above, and 15 s behind them
    assert clock.allows(2.0, arms, 5) and not clock.allows(1.99, arms, 5)
