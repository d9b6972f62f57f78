"""Rates past an end of a grid: the same runs as if they had been typed, for the arms that they could help alone."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch

from tunescope.comparison import execution, protocol
from tunescope.comparison.comparison import compare, resume
from tunescope.comparison.conclusion import fail
from tunescope.comparison.costs import Costs, Sizes, rounds
from tunescope.comparison.entry import entered, jobs_left, trial_of
from tunescope.comparison.job import Job
from tunescope.comparison.pilot import piloted
from tunescope.comparison.standing import Standing
from tunescope.comparison.trials import next_rates, unmoved_remark
from tunescope.errors import UserError
from tunescope.methods.contexts.prefix import Prefix
from tunescope.methods.contexts.text import Text
from tunescope.methods.deltas.bias import Bias
from tunescope.methods.deltas.head import Head
from tunescope.methods.deltas.lora import LoRA
from tunescope.report import terminal
from tunescope.report.verdict import edges
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.arm import Arm, Ready
from tunescope.trial.command import command
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.plan_json import from_json, to_json
from tunescope.trial.rates import following, start, unless_far_off
from tunescope.trial.train.settings import Settings

ARMS = ("prefix:length=3", "lora:rank=2", "zero-shot")
WORDS = {"neg": "bad", "pos": "good"}


def plan(**changes: Any) -> Plan:
    return Plan(model="m", data={"train": "t"}, task={"kind": "classification"}, **changes)


def test_three_are_tried_unless_it_is_said_how_many_or_one_rate_is_given() -> None:
    assert (plan().past, plan(beyond=1).past, plan(trials=1).past, plan(rates=(1e-3,)).past) == (3, 1, 0, 0)
    assert plan(rates=(1e-3, 1e-2)).past == replace(plan(trials=1), trials=3).past == 3
    assert from_json(to_json(plan()), Path("config.json")).beyond == 3  # whatever is usual later


def ran(folder: Path, name: str, **options: Any) -> Any:
    if not (folder / "model").exists():
        tinyrun.write(folder)
    data = {part: str(folder / f"{part}.jsonl") for part in ("train", "dev", "test")}
    given: dict[str, Any] = {
        "arms": ARMS,
        "task": Classification(words=WORDS),
        "settings": Settings(steps=12, batch_size=8, eval_every=4, patience=9),
        "learning_rates": (1e-7, 1e-6),
        "seeds": 2,
        "out": folder / name,
        "quiet": True,
    }
    return compare(str(folder / "model"), data, **(given | options))


def arms(found: Any) -> dict[str, Any]:
    return {arm["name"]: arm for arm in found.results["arms"]}


def page(found: Any) -> str:
    return (found.folder / "report.html").read_text()


def rates(arm: dict[str, Any]) -> list[float]:
    return [trial["learning_rate"] for trial in arm["trials"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beyond")


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    return ran(folder, "beyond", beyond=3)


def test_three_times_the_largest_a_third_of_the_smallest_nothing_within() -> None:
    grid = [(1e-3, 3e-4), (1e-2, 2e-3), (5e-2, 1e-2)]
    assert following(grid, grid[2]) == (0.15, 0.03)
    assert following(grid, grid[0]) == (3.33e-4, 1e-4)
    assert following(grid, grid[1]) is None
    assert following([*grid, (0.15, 0.03)], grid[2]) is None  # the one past the end has lost
    assert following(grid[:1], grid[0]) is None
    assert following([*grid, (0.15, 0.03)], grid[2], unmoved=True) == (3.33e-4, 1e-4)  # nor is the other end known
    assert following([*grid, (3.33e-4, 1e-4)], grid[0], unmoved=True) == (0.15, 0.03)
    assert following(grid, grid[0], unmoved=True) == (3.33e-4, 1e-4)


PAIRS = [(1e-2, 1e-3), (5e-2, 5e-3), (2e-1, 2e-2)]
MIDDLE = PAIRS[1]


def test_composed_methods_are_tried_apart_where_the_best_pair_lies_within() -> None:
    up, other, down = (2e-1, 5e-3), (5e-2, 2e-2), (1e-2, 5e-3)
    assert following(PAIRS, MIDDLE) is None  # a single method's
    assert following(PAIRS, MIDDLE, parts=[0]) is None
    assert following(PAIRS, PAIRS[2], parts=[0, 1]) == (0.6, 0.06)  # both together while an end of both wins
    seen = list(PAIRS)
    for expected in (up, other, down, (5e-2, 1e-3)):
        assert following(seen, MIDDLE, parts=[0, 1]) == expected
        seen.append(expected)
    assert following(seen, MIDDLE, parts=[0, 1]) is None  # every neighbour has been tried
    assert following([*PAIRS, up], up, parts=[0, 1]) == (0.6, 5e-3)  # what has won goes on: past its own end
    assert following([*PAIRS, down], down, parts=[0, 1]) == (1e-2, 2e-2)  # (5e-2, 5e-3) was tried
    assert following(PAIRS, MIDDLE, parts=[0, 1], unmoved=True) == (3.33e-3, 3.33e-4)  # no end is known yet
    assert following(PAIRS, MIDDLE, parts=[0, 1], apart=False) is None


def test_what_is_not_trained_or_is_a_head_is_not_tried_apart() -> None:
    triple = [(1.0, 1e-2, 1e-3), (2.0, 5e-2, 5e-3), (3.0, 2e-1, 2e-2)]
    seen = list(triple)
    for _ in range(4):
        seen.append(following(seen, triple[1], parts=[1, 2]) or ())
    assert [rates[0] for rates in seen[3:]] == [2.0] * 4
    assert following(seen, triple[1], parts=[1, 2]) is None


GRIDS = [PAIRS, PAIRS[:2], [(*pair, 7 * pair[0]) for pair in PAIRS]]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("grid", GRIDS)
def test_whatever_wins_no_two_train_alike_and_a_corner_is_gone_past(grid: Any, frozen: bool) -> None:
    """Every winner of every round. frozen: behind a rate that trains nothing, or a head's, which is no part."""
    places = range(len(grid[0]))
    walks = [([(3.0 + at, *rates) for at, rates in enumerate(grid)] if frozen else list(grid), 4)]
    parts, seen = [place + frozen for place in places], 0
    while walks:
        tried, left = walks.pop()
        trained = [tuple(rates[part] for part in parts) for rates in tried]
        assert len(set(trained)) == len(trained)
        for best, own in zip(tried, trained, strict=True) if left else ():
            more = following(tried, best, parts)
            corners = [tuple(end(column) for column in zip(*trained, strict=True)) for end in (min, max)]
            changed = sum(one != other for one, other in zip(best, more or best, strict=True))
            assert (changed == len(best)) == (own in corners) and (changed == 1 or own in corners or more is None)
            if more is not None and (left == 4 or best == tried[-1] or best == tried[0]):
                seen += 1
                walks.append(([*tried, more], left - 1))
    assert seen > 20


def test_the_rule_is_that_of_the_best_trial_so_far(found: Any) -> None:
    """Followed by hand through every arm's trials, from what they scored."""
    for name in ARMS[:2]:
        trials = arms(found)[name]["trials"]
        assert len(trials) > 2
        for count in range(2, len(trials) + 1):
            seen = trials[:count]
            best = max(seen, key=lambda one: (one["dev"], -one["loss"]))["learning_rate"]
            tried = rates({"trials": seen})
            more = {max(tried): max(tried) * 3, min(tried): min(tried) / 3}.get(best)
            if count < len(trials):
                assert trials[count]["learning_rate"] == pytest.approx(more, rel=1e-2)
            else:
                assert more is None or count == 5
    assert not arms(found)["zero-shot"]["trials"]
    assert "the learning rates 1e-07, 1e-06, and up to 3 past an end of these that won." in page(found)


def test_they_are_the_runs_of_the_same_rates_typed(folder: Path, found: Any) -> None:
    for name in ARMS[:2]:
        typed = ran(folder, f"typed-{name[:4]}", arms=[name], learning_rates=tuple(rates(arms(found)[name])), beyond=0)
        one, other = arms(typed)[name], arms(found)[name]
        assert one["learning_rate"] == other["learning_rate"] and one["score"] == other["score"]
        assert {trial["id"]: trial["dev"] for trial in one["trials"]} == {
            trial["id"]: trial["dev"] for trial in other["trials"]
        }


def test_without_it_nothing_changes_and_the_edge_is_told(folder: Path) -> None:
    plain = ran(folder, "plain", beyond=0)
    assert all(len(arms(plain)[name]["trials"]) == 2 for name in ARMS[:2])
    said = [line for line in str(plain).splitlines() if line.startswith("note: The ")]
    chosen = {name: arms(plain)[name]["learning_rate"] for name in ARMS[:2]}
    for end, rate in (("largest", 1e-6), ("smallest", 1e-7)):
        named = [name for name in ARMS[:2] if chosen[name] == rate]
        assert [line for line in said if end in line] == [
            f"note: The {end} learning rate tried was chosen for {', '.join(named)}: a "
            f"{'larger' if end == 'largest' else 'smaller'} one might do better. With compare --beyond 2 such arms "
            "try up to 2 past the end."
        ] * bool(named)
    assert said and said[0].removeprefix("note: ") in page(plain)
    assert "past an end of these" not in page(plain)


def test_a_run_that_was_stopped_keeps_what_it_had(folder: Path, found: Any) -> None:
    kept = {path: path.stat().st_mtime_ns for path in sorted(found.folder.glob("arms/*/result.json"))}
    before = found.results["arms"]
    (found.folder / "results.json").unlink()
    again = ran(folder, "beyond", beyond=3)
    assert json.loads(json.dumps(again.results["arms"])) == json.loads(json.dumps(before))
    assert {path: path.stat().st_mtime_ns for path in sorted(found.folder.glob("arms/*/result.json"))} == kept


def test_what_was_half_done_past_an_end_is_wanted_when_it_goes_on(folder: Path, monkeypatch: Any) -> None:
    wanted = set[str]()
    monkeypatch.setattr("tunescope.system.run_folder.sweep_half_done", lambda _, names: wanted.update(names))
    monkeypatch.setattr("tunescope.system.job_folder.leased", lambda _: {"at another machine"})
    for arm in arms(ran(folder, "swept", beyond=3)).values():
        assert {one["id"] for one in arm["trials"] + arm["runs"] if arm["trials"]} <= wanted
    assert "at another machine" in wanted


def test_a_run_begun_before_there_was_such_an_option_goes_on(folder: Path) -> None:
    begun = ran(folder, "older", arms=["lora:rank=2"], beyond=0)
    config = json.loads((begun.folder / "config.json").read_text())
    assert config.pop("beyond") == 0
    (begun.folder / "config.json").write_text(json.dumps(config))
    assert ran(folder, "older", arms=["lora:rank=2"], beyond=0).results["arms"] == begun.results["arms"]
    with pytest.raises(UserError, match=r"another comparison \(it differs in: beyond\)"):
        ran(folder, "older", arms=["lora:rank=2"], beyond=1)


@pytest.mark.parametrize("how", [{"workers": 2}, {"together": 4}])
def test_workers_and_shared_passes_find_the_same(folder: Path, found: Any, how: dict[str, int]) -> None:
    other = arms(ran(folder, "-".join(how), beyond=3, **how))
    for name in ARMS[:2]:
        assert rates(other[name]) == rates(arms(found)[name])
        assert other[name]["score"] == pytest.approx(arms(found)[name]["score"], abs=1e-6)


BOTH = "both=prefix:length=3+lora:rank=2"
APART = {"arms": (BOTH, "lora:rank=2"), "learning_rates": (1e-2, 1e-1, 1.0), "beyond": 4}


def apart(folder: Path, name: str, **changes: Any) -> Any:
    """With the scores of one answer for a success, or so small a model would have learnt nothing at any rate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tunescope.comparison.trials._one_answer", lambda _: 0.0)
        return ran(folder, name, **(APART | changes))


@pytest.fixture(scope="module")
def composed(folder: Path) -> Any:
    return apart(folder, "apart")


def pairs(arm: dict[str, Any]) -> list[tuple[float, float]]:
    return [tuple(trial["learning_rates"]) for trial in arm["trials"]]


def test_the_methods_of_a_composition_are_tried_apart_from_the_best_so_far(composed: Any) -> None:
    """Followed by hand: a pair off the line differs from the best before it in one rate, by one step."""
    arm = arms(composed)["both"]
    found, trials = pairs(arm), arm["trials"]
    assert found[:3] == [(1e-2, 1e-2), (1e-1, 1e-1), (1.0, 1.0)] and len(found) == 7
    assert any(one != other for one, other in found)
    for count in range(3, len(found)):
        before = trials[:count]
        best = max(before, key=lambda one: (one["dev"] or 0, -one.get("loss", 1e9)))["learning_rates"]
        differ = [part for part in (0, 1) if found[count][part] != best[part]]
        known = [{pair[part] for pair in found[:count]} for part in (0, 1)]
        if len(differ) == 1:
            (part,) = differ
            between = sorted((found[count][part], best[part]))
            assert not [rate for rate in known[part] if between[0] < rate < between[1]]
        else:
            assert tuple(best) in (tuple(map(max, known)), tuple(map(min, known)))
    assert len(set(found)) == len(found)
    chosen = max(trials, key=lambda one: (one["dev"] or 0, -one.get("loss", 1e9)))
    assert arm["learning_rates"] == chosen["learning_rates"] and arm["learning_rate"] == chosen["learning_rates"][0]
    assert arm["runs"][0]["id"] == chosen["id"] and chosen["learning_rates"][0] != chosen["learning_rates"][1]
    assert all(len(trial["learning_rates"]) == 1 for trial in arms(composed)["lora:rank=2"]["trials"])


def test_what_it_trains_with_is_what_it_says(folder: Path, composed: Any, monkeypatch: Any) -> None:
    """The largest rates of the optimiser's steps, by the size of what they move: of the prefix, and of the LoRA."""
    seen = dict[int, list[float]]()
    step = torch.optim.AdamW.step

    def watched(self: Any, *args: Any, **more: Any) -> Any:
        own = seen.setdefault(id(self), [0.0, 0.0])
        kept.append(self)  # or another optimiser could have its id
        for group in self.param_groups:
            for leaf in group["params"]:
                part = int(3 not in leaf.shape)
                own[part] = max(own[part], group["lr"])
        return step(self, *args, **more)

    kept = list[Any]()
    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    arm = arms(apart(folder, "apart-again", arms=(BOTH,), workers=1, seeds=1))["both"]
    assert pairs(arm) == pairs(arms(composed)["both"])
    assert [tuple(own) for own in seen.values()] == [pytest.approx(pair) for pair in pairs(arm)]


def test_every_trial_has_a_name_of_its_own_where_it_is_told(composed: Any) -> None:
    """Or the curves of two would be one in a log."""
    specs = (Prefix(length=3), LoRA(rank=2))
    made: Any = {field.name: None for field in fields(Ready)}
    arm = Ready(**(made | {"arm": Arm("both", BOTH), "specs": specs, "trains": (True, True)}))
    jobs = [Job("id", arm, pair, 0, 5) for pair in pairs(arms(composed)["both"])]
    expected = [f"lr {one:g}+{other:g} seed 0" for one, other in pairs(arms(composed)["both"])]
    assert [execution.named(todo) for todo in jobs] == expected and len(set(expected)) == 7
    assert [execution._run(todo).name for todo in jobs] == [f"both/{name}" for name in expected]


def test_a_page_and_a_table_show_every_rate(composed: Any) -> None:
    arm = arms(composed)["both"]
    shown = "+".join(f"{rate:g}" for rate in arm["learning_rates"])
    text = page(composed)
    assert f">{shown}</td>" in text and f"of each learning rate of both; {shown} chosen" in text
    for pair in pairs(arm):
        assert f"<title>{pair[0]:g}+{pair[1]:g}: " in text
    drawn = re.search(r"<svg[^>]*of each learning rate of both;.*?</svg>", text, flags=re.DOTALL)
    assert drawn is not None and drawn[0].count('class="ring"') == 1
    same = [pair for pair in pairs(arm) if pair[0] == arm["learning_rates"][0]]
    assert len(same) > 1  # so that one rate of the first method does not name the chosen trial
    assert "and up to 4 past an end of these that won or, of composed methods, of one alone." in text
    assert shown in str(composed)
    assert [row["learning_rates"] for row in composed.table() if row["arm"] == "both"] == [shown]


def test_a_composition_that_was_stopped_goes_on_with_what_it_had(folder: Path, composed: Any, monkeypatch: Any) -> None:
    wanted = set[str]()
    monkeypatch.setattr("tunescope.system.run_folder.sweep_half_done", lambda _, names: wanted.update(names))
    (composed.folder / "results.json").unlink()
    again = apart(folder, "apart")
    assert json.loads(json.dumps(again.results["arms"])) == json.loads(json.dumps(composed.results["arms"]))
    assert {one["id"] for arm in again.results["arms"] for one in arm["trials"] + arm["runs"]} <= wanted


def test_a_pilot_of_a_composition_walks_its_grids_together(folder: Path, composed: Any) -> None:
    """Its few steps are told apart by their loss alone, which says too little of one method beside another."""
    data = {part: str(folder / f"{part}.jsonl") for part in ("train", "dev", "test")}
    task = {"kind": "classification", "words": WORDS}
    asked = Plan(model=str(folder / "model"), data=data, task=task, arms=(BOTH,))
    for bench, more in ((open_bench(asked), (2e-1, 5e-3)), (open_bench(piloted(asked)), None)):
        (entry,) = entered(bench)
        middle = entry.trials[1]
        assert entry.arm is not None and middle.rates == MIDDLE == entry.start
        scores = {todo.id: 0.9 if todo is middle else 0.8 for todo in entry.trials}
        outcomes: Any = {key: {"status": "done", "dev": dev, "curve": [{"loss": 1.0}]} for key, dev in scores.items()}
        assert next_rates(bench, entry, outcomes) == more
        assert jobs_left(bench, entry) == entry.trials  # nothing has been chosen
        entry.chosen = MIDDLE
        left = {todo.id for todo in jobs_left(bench, entry)}
        assert {todo.id for todo in entry.trials} < left and len(left) >= 3 + len(bench.plan.seeds) - 1


def test_a_head_and_what_is_not_trained_are_no_parts() -> None:
    specs = (Text("Review:"), LoRA(rank=2), Head(n_labels=2), Bias())
    made: Any = {field.name: None for field in fields(Ready)}
    arm = Ready(**(made | {"specs": specs, "trains": (False, True, True, True)}))
    assert arm.parts == [1, 3]
    alone = Ready(**(made | {"specs": (Head(n_labels=2),), "trains": (True,)}))
    assert alone.parts == [] and Job("id", alone, (1e-2,), 0, 5).each_rate == [1e-2]
    assert Job("id", arm, (0.0, 1e-3, 1e-2, 5e-3), 0, 5).each_rate == [1e-3, 5e-3]
    assert Job("id", arm, (), 0, 5).each_rate == []


def test_every_rate_of_a_run_that_failed_is_named() -> None:
    standing, rates = Standing("mam"), {"learning_rate": 0.2, "learning_rates": [0.2, 5e-3]}
    fail(standing, {"status": "diverged", "seed": 2, "reason": "why", **rates})
    assert standing.reason == "seed 2, learning rate 0.2+0.005: why"


def test_a_method_at_an_end_of_its_own_rates_is_told() -> None:
    trials = [{"learning_rates": list(pair), "learning_rate": pair[0], "status": "done"} for pair in PAIRS]
    within = {"name": "mam", "learning_rates": [5e-2, 5e-3], "trials": trials}
    assert edges.arm_edges(within) == set()
    assert edges.arm_edges(within | {"learning_rates": [5e-2, 2e-2]}) == {"largest"}
    assert edges.arm_edges(within | {"learning_rates": [1e-2, 5e-3]}) == {"smallest"}
    both = edges.at_an_edge([within | {"learning_rates": [1e-2, 2e-2]}], {})
    assert [line.split()[1] for line in both] == ["largest", "smallest"] and all("for mam: " in line for line in both)
    old = [{key: trial[key] for key in ("learning_rate", "status")} for trial in trials]
    mixed = [*trials, {"learning_rate": 9.0, "status": "done"}]  # one of whose rates the second is not known
    assert edges.arm_edges(within | {"learning_rates": [2e-1, 5e-3], "trials": mixed}) == {"largest"}
    assert edges.arm_edges({"name": "old", "learning_rate": 2e-1, "trials": old}) == {"largest"}
    lost = [*trials, {"learning_rates": [5e-2, 6e-2], "learning_rate": 5e-2, "status": "out of memory"}]
    assert edges.arm_edges(within | {"learning_rates": [5e-2, 2e-2], "trials": lost}) == {"largest"}
    assert "mam at 0.05+0.06" in edges.choice_in_doubt([within | {"trials": lost, "score": 1.0}])[0]


def test_a_rate_that_lost_a_race_or_diverged_was_tried_and_none_within_them_is_an_end() -> None:
    tried = [{"learning_rate": 1e-3, "status": "lost"}, {"learning_rate": 1e-2, "status": "done"}]
    tried += [{"learning_rate": 1e-1, "status": "diverged"}]
    assert edges.arm_edges({"name": "one", "learning_rate": 1e-2, "trials": tried}) == set()


def test_what_was_begun_when_nothing_was_tried_apart_goes_on_so(folder: Path) -> None:
    """Of a finished run only the page is made again: no rate is tried that it did not try."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tunescope.comparison.trials._one_answer", lambda _: 0.0)
        patch.setattr("tunescope.trial.rates._moved", lambda *_, **__: PAIRS[0])
        patch.setattr("tunescope.trial.rates._at", lambda *_: (1.0,))  # nothing is left to be tried apart
        begun = ran(folder, "older-pairs", **(APART | {"arms": (BOTH,)}))
        config = json.loads((begun.folder / "config.json").read_text())
        assert config.pop("apart") is True
        (begun.folder / "config.json").write_text(json.dumps(config))
    before = [arm["trials"] for arm in begun.results["arms"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tunescope.comparison.trials._one_answer", lambda _: 0.0)
        for typed in (False, True):
            again = (
                ran(folder, "older-pairs", **(APART | {"arms": (BOTH,)})) if typed else resume(begun.folder, quiet=True)
            )
            assert [arm["trials"] for arm in again.results["arms"]] == before
            assert again.results["protocol"]["apart"] is False
            assert "of composed methods, of one alone" not in page(again)
            (begun.folder / "results.json").unlink()  # it is typed again, half done


def test_an_outcome_of_an_older_version_has_the_rates_of_its_job() -> None:
    made: Any = {field.name: None for field in fields(Ready)}
    todo = Job("id", Ready(**(made | {"specs": (LoRA(), Bias()), "trains": (True, True)})), (1e-3, 1e-2), 0, 5)
    old = {"id": "id", "status": "diverged", "learning_rate": 1e-3}
    assert protocol._trial(todo, old)["learning_rates"] == [1e-3, 1e-2]


def test_with_halving_the_end_is_that_of_the_rate_that_went_on(folder: Path) -> None:
    halved = ran(folder, "halved", beyond=1, halving=True, arms=["lora:rank=2"])
    trials = arms(halved)["lora:rank=2"]["trials"]
    assert [trial["status"] for trial in trials].count("lost") == 1
    assert len(trials) == 3 and trials[2]["status"] == "done"


def test_one_that_diverges_past_the_end_costs_nothing(folder: Path) -> None:
    grid = (1e-3, 1e30)
    wild = ran(folder, "wild", arms=["lora:rank=2"], learning_rates=grid, beyond=2)
    arm = arms(wild)["lora:rank=2"]
    assert arm["status"] == "done" and arm["learning_rate"] < 1 and len(arm["trials"]) > 2


def steps(asked: Plan) -> float:
    """Of all runs of an arm."""
    return rounds(asked, [Costs("lora", "delta", True, True, step=1.0)], Sizes(10, 10, True)).total()


def test_what_it_takes_is_counted_and_the_command_says_it() -> None:
    whole = plan(beyond=2)
    assert steps(whole) == 7 * 500 and steps(plan(beyond=0)) == 5 * 500
    assert steps(plan(beyond=2, halving=True)) == 2 * 200 + 5 * 500
    assert "--beyond 2" in command(check(whole)) and "--beyond 0" in command(plan(beyond=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beyond": -1}, "--beyond -1 is too small; give a whole number of 0 or more."),
        ({"beyond": 1, "trials": 1}, "--beyond has no effect on one learning rate; give more with --trials or --lr."),
        ({"beyond": 1, "rates": (1e-3,)}, "--beyond has no effect on one learning rate; give more"),
    ],
)
def test_what_it_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        check(plan(**changes))
    assert message in str(caught.value)


def test_a_pilot_tries_them_too() -> None:
    assert piloted(plan(beyond=1)).past == 1


def test_a_result_of_an_older_version_is_read(found: Any) -> None:
    old = {**found.results, "protocol": {k: v for k, v in found.results["protocol"].items() if k != "beyond"}}
    assert terminal.edge_notes({**old, "protocol": old["protocol"] | {"pilot_of": {"steps": 12}}}) == []
    assert terminal.edge_notes(old) == [line.replace("5", "2") for line in terminal.edge_notes(found.results)]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({1.0: 2.0, 2.0: 1.9, 4.0: 1.0}, 2.0),  # 4.0 is ahead, not far ahead
        ({1.0: 2.0, 2.0: 1.9, 4.0: 0.9}, 4.0),
        ({1.0: 0.5, 2.0: 1.9, 4.0: 0.9}, 1.0),
        ({1.0: 2.0, 4.0: 1.9}, 4.0),  # that of 2.0 did not finish
    ],
)
def test_after_a_few_steps_the_middle_stays_unless_it_is_far_off(losses, expected) -> None:
    assert unless_far_off((2.0,), {(rate,): loss for rate, loss in losses.items()}) == (expected,)
    assert start([(4.0,), (1.0,), (2.0,)]) == (2.0,) and start([(1.0,), (2.0,)]) == (2.0,)


def after(bench: Any, devs: dict[float, float | None], losses: dict[float, float]) -> tuple[Any, str]:
    """What is tried after rates with these scores and losses, and what is said of them."""
    (entry,) = entered(bench)
    assert entry.arm is not None
    entry.trials = [trial_of(bench, entry.arm, (rate,), 0) for rate in devs]
    outcomes: dict[str, Any] = {
        todo.id: {"status": "done", "dev": devs[todo.rates[0]], "curve": [{"loss": losses[todo.rates[0]]}]}
        for todo in entry.trials
    }
    return next_rates(bench, entry, outcomes), unmoved_remark(bench, entry, outcomes)


WRITTEN = {"kind": "generation", "input": "text", "target": "label"}


@pytest.mark.parametrize("task", [{"kind": "classification", "words": WORDS}, WRITTEN])
def test_where_no_rate_beats_one_answer_to_all_the_other_end_is_gone_past_too(folder: Path, task: Any) -> None:
    if not (folder / "model").exists():
        tinyrun.write(folder)
    data = {part: str(folder / f"{part}.jsonl") for part in ("train", "dev", "test")}
    bench = open_bench(Plan(model=str(folder / "model"), data=data, task=task, arms=("lora:rank=2",)))
    labels = [json.loads(line)["label"] for line in (folder / "dev.jsonl").read_text().splitlines()]
    floor = max(labels.count(label) for label in labels) / len(labels) if task is not WRITTEN else 0.0
    losses = {1e-3: 3.0, 5e-3: 2.0, 2e-2: 1.0, 6e-2: 4.0, 3.33e-4: 0.5}
    flat = dict.fromkeys((1e-3, 5e-3, 2e-2), floor)
    said = f"Nothing was learnt at any learning rate tried: on dev at most {floor:.3g}"
    said += f", and one answer to all rows gets {floor:.3g}." if floor else "."
    assert after(bench, flat, losses) == ((6e-2,), said)  # by the loss, which is all there is
    assert after(bench, flat | {6e-2: floor}, losses) == ((3.33e-4,), said)
    assert after(bench, flat | {6e-2: floor, 3.33e-4: 0.9}, losses) == ((1.11e-4,), "")
    assert after(bench, flat | {2e-2: floor + 0.01, 6e-2: floor}, losses) == (None, "")  # one has learnt
    assert after(bench, dict.fromkeys((1e-3, 2e-2, 6e-2)), losses)[1] == ""  # a pilot has no scores
