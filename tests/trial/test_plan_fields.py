"""An option is said once, at its field: Python takes its names, the command says it, old runs keep their folders."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tunescope.cli import app
from tunescope.comparison.comparison import compare
from tunescope.errors import UserError
from tunescope.system.option import options_of
from tunescope.trial.command import command
from tunescope.trial.identity import default_folder
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.plan_fields import planned
from tunescope.trial.train.settings import Settings

TASK = {"kind": "classification"}
OTHER = {
    "arms": ("lora", "demos:k=2"),
    "budgets": (64, 128),
    "trials": 2,
    "rates": (0.1, 0.001234567),
    "seeds": (4, 5),
    "halving": True,
    "beyond": 2,
    "k_shot": 8,
    "dev_share": 0.5,
    "longest_field": 2000,
    "max_seeds": 12,
    "margin": 0.03,
    "forgetting": "other.txt",
    "steps": 90,
    "batch_size": 4,
    "accumulate": 2,
    "optimizer": "adafactor",
    "schedule": "cosine",
    "warmup": 0.0,
    "weight_decay": 0.01,
    "clip": 0.5,
    "precision": "float32",
    "eval_every": 7,
    "patience": 2,
    "load": "8bit",
    "device_map": "auto",
    "gradient_checkpointing": True,
    "processes": 2,
    "parallel": "ddp",
}


def given(**fields: Any) -> Plan:
    return planned("m", "d.jsonl", TASK, {"device": "cpu", **fields})


def test_python_takes_fields_by_their_names_and_by_those_of_their_options() -> None:
    asked = given(arms="lora", budget=64, seeds=2, learning_rates=[0.1], steps=40, clip=0.5, together=2)
    assert asked == given(arms=["lora"], budgets=(64,), seeds=[0, 1], rates=(0.1,), steps=40, clip=0.5, together=2)
    assert asked == given(arms=["lora"], budget=[64], seeds=(0, 1), lr=[0.1], steps=40, clip=0.5, together=2)
    assert asked.settings == Settings(steps=40, eval_every=4, clip=0.5)
    assert (asked.arms, asked.budgets, asked.seeds, asked.rates) == (("lora",), (64,), (0, 1), (0.1,))
    assert given().settings == Settings(steps=500, batch_size=16, eval_every=50)
    assert given(settings=None, budget=None, k_shot=None) == given()
    assert given(settings=Settings(clip=2.0)).settings == Settings(clip=2.0)


@pytest.mark.parametrize(("steps", "every"), [(20, 2), (500, 50), (4, 1), (2009, 200)])
def test_development_scores_are_taken_every_tenth_of_the_steps_however_the_settings_are_given(steps, every) -> None:
    assert Settings(steps=steps).eval_every == every
    assert given(steps=steps) == given(settings=Settings(steps=steps), dev_share=0.2)
    assert Plan(settings=Settings(steps=steps)).settings.eval_every == every
    assert replace(Settings(steps=steps), steps=7).eval_every == every  # a trial of a rate is cut, not scored anew


@pytest.mark.parametrize(("steps", "every"), [(500, 50), (2000, 50), (20, 2), (20, 20)])
def test_a_command_asks_for_the_same_development_scores(steps: int, every: int) -> None:
    words = command(given(steps=steps, eval_every=every)).split()
    told = int(words[words.index("--eval-every") + 1]) if "--eval-every" in words else max(1, steps // 10)
    assert told == every and int(words[words.index("--steps") + 1]) == steps


def test_what_cannot_be_given_is_refused_in_one_line() -> None:
    with pytest.raises(
        UserError, match=r"^compare has no field 'beyound'\. Did you mean 'beyond'\? It has: arms, budget"
    ):
        compare("m", "d.jsonl", beyound=2)
    with pytest.raises(
        UserError, match=r"no field 'pilot_of'.* It has: arms, budget, trials, learning_rates, seeds, thr"
    ):
        compare("m", "d.jsonl", pilot_of=None)
    with pytest.raises(UserError, match=r"compare\(settings=\.\.\., steps=\.\.\.\): settings says all of the training"):
        compare("m", "d.jsonl", settings=Settings(), steps=5)
    with pytest.raises(UserError, match=r"compare\(learning_rates=\.\.\.\) is given twice: 'rates' is another name"):
        compare("m", "d.jsonl", lr=[0.1], learning_rates=[0.1])
    with pytest.raises(UserError, match=r"compare\(plan=\.\.\., steps=\.\.\.\): give a plan or its fields, not both\."):
        compare("m", "d.jsonl", plan=Plan(), steps=5)


def test_a_task_that_is_no_task_is_refused_with_what_to_type():
    with pytest.raises(
        UserError, match=r"task='classification', template='\{text\} It was'; or a Task; it was given: dict\."
    ):
        compare("model", "rows.jsonl", task={"kind": "classification"})


def test_seeds_that_are_not_given_are_three_with_looks_at_more_and_none_are_refused() -> None:
    assert (given().seeds, given().max_seeds) == ((0, 1, 2), 12)
    assert (given(seeds=3).max_seeds, given(seeds=3, max_seeds=6).max_seeds, given(k_shot=4).max_seeds) == (
        None,
        6,
        None,
    )
    assert given(max_seeds=6).seeds == (0, 1, 2)
    for none in (0, []):
        with pytest.raises(UserError, match="--seeds 0: give how many, 1 or more, or which"):
            given(seeds=none)


def test_a_plan_is_asked_of_the_model_and_the_data_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr("tunescope.comparison.comparison.run", lambda asked, *_, **__: seen.append(asked))
    plan = Plan(arms=("lora",), settings=Settings(steps=7))
    compare("m", "d.jsonl", plan=plan)
    compare("m", "d.jsonl", plan=plan, task="generation")
    assert seen[0] == replace(plan, model="m", data=given().data)
    assert seen[1] == replace(seen[0], task={"kind": "generation"})


@pytest.mark.parametrize("field", [one.field for kind in (Plan, Settings) for one in options_of(kind)])
def test_each_option_stands_in_the_command_which_asks_the_same(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if field in ("together", "minutes"):  # a question of time, which a result does not depend on
        assert f"--{field}" not in command(given(**{field: 2}))
        return
    if field == "device":  # of the machine, and another may have none of that name
        assert "--device" not in command(given(device="cuda"))
        return
    if field in ("processes", "parallel"):
        monkeypatch.setenv("WORLD_SIZE", "2")  # they are begun already
    asked = given(**{field: OTHER[field]})
    typed = next(one for kind in (Plan, Settings) for one in options_of(kind) if one.field == field)
    assert typed.names[0] in command(asked)
    seen: list[Plan] = []
    done = SimpleNamespace(folder=None, results={"arms": [{"status": "done"}]})
    monkeypatch.setattr("tunescope.comparison.comparison.ask", lambda plan, folder, **named: seen.append(plan) or done)
    monkeypatch.setattr("tunescope.cli.side_by_side.print_run", lambda folder, results: None)
    for here in (False, True):
        words = shlex.split(command(asked, here))[1:]
        app.app(words, exit_on_error=False, print_error=False, result_action="return_value")
        assert replace(seen.pop(), device="cpu", beyond=asked.past) == replace(asked, beyond=asked.past)


def test_what_is_typed_here_has_its_paths_and_no_default() -> None:
    asked = planned("a folder/m", "far/d.csv", TASK, {"device": "cpu", "arms": "lora", "dev_share": 0.2})
    assert command(asked, here=True) == "tunescope compare 'a folder/m' far/d.csv --arms lora"
    assert command(replace(asked, max_seeds=None), here=True).endswith(" --seeds 3")
    assert command(replace(asked, dev_share=None), here=True).endswith(" --dev-share 1")
    assert "far" not in command(asked)


def test_the_folders_of_runs_that_were_begun_before_are_found_again() -> None:
    """Names that tunescope gave at commit 36bdb15."""
    task = {"kind": "generation", "input": "mr", "metric": "bleu", "also": ("nist",), "template": "{mr} =>"}
    settings = Settings(steps=40, warmup=0.0, clip=0.5, eval_every=4)
    whole = {"arms": ("lora:rank=4", "prefix"), "budgets": (1000, 2000), "rates": (1e-3, 1234567e-9), "beyond": 2}
    data = {"train": "a/train.jsonl", "test": "b/test.jsonl"}
    asked = Plan(
        model="some/model",
        data=data,
        task={**task, "lowercase": True},
        seeds=(0, 1),
        k_shot=16,
        settings=settings,
        **whole,
    )
    assert default_folder(asked).name == "some-model-train-70fdb1ae"
    words = {"neg": "bad film", "pos": "good"}
    one = {"kind": "classification", "words": words, "text": "t"}
    asked = Plan(model="m", data={"train": "d.jsonl"}, task=one, seeds=(2,), halving=True, beyond=0, together=4)
    assert default_folder(asked).name == "m-d-27228c03"
    assert command(asked) == (
        "tunescope compare m d.jsonl --task classification --text-field t --words 'neg=bad film' pos=good --trials 3 "
        "--seeds 1 --halving --beyond 0 --dev-share 1 --steps 500 --batch-size 16  # in Python: seeds=[2]"
    )


def test_more_seeds_than_anybody_means_are_refused_before_they_are_counted_out() -> None:
    with pytest.raises(UserError, match=r"--seeds 10*0 are too many; give how many, 1 to 1000, or which: two or more"):
        given(seeds=10**30)


def test_the_task_s_own_fields_are_given_beside_those_of_the_plan(monkeypatch):
    seen = []
    monkeypatch.setattr("tunescope.comparison.comparison.check", lambda plan: seen.append(plan) or plan)
    monkeypatch.setattr("tunescope.comparison.comparison.default_folder", lambda plan: "nowhere")
    monkeypatch.setattr("tunescope.comparison.comparison.run", lambda plan, *more, **named: plan)
    words = {"template": "{text} It was", "words": {"neg": "bad"}, "text_field": "review", "steps": 7}
    compare("m", "d.jsonl", **words)
    assert seen[-1].task == {
        "kind": "classification", "template": "{text} It was", "words": {"neg": "bad"}, "text": "review"
    }  # fmt: skip
    assert seen[-1].settings.steps == 7
    compare("m", "d.jsonl", task="generation", input="q", target_field="a", metric=["bleu", "rouge_l"])
    asked = {"kind": "generation", "input": "q", "target": "a", "metric": "bleu", "also": ("rouge_l",)}
    assert seen[-1].task == asked
    compare("m", "d.jsonl", words="neg=bad,pos=great", label=None)
    assert seen[-1].task == {"kind": "classification", "words": {"neg": "bad", "pos": "great"}}
    with pytest.raises(
        UserError, match=r"compare\(target_field=...\) is for task='generation' or 'reasoning', .*'classification'"
    ):
        compare("m", "d.jsonl", target_field="a")
    with pytest.raises(UserError, match=r"compare has no field 'templat'"):
        compare("m", "d.jsonl", templat="a")


def test_a_model_is_found_from_any_folder_and_typed_as_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    made = planned("own", "d.jsonl", TASK, {"device": "cpu"})
    assert made.model == str(tmp_path / "own")
    assert command(made).split()[:3] == command(made, here=True).split()[:3] == ["tunescope", "compare", "own"]
    assert planned("org/on-the-hub", "d.jsonl", TASK, {"device": "cpu"}).model == "org/on-the-hub"


@pytest.mark.parametrize(("count", "told"), [(-1, "--seeds -1 are too few"), (0, "--seeds 0: give how many")])
def test_seeds_are_told_as_they_were_given(count: int, told: str) -> None:
    with pytest.raises(UserError, match=told):
        given(seeds=count)


@pytest.mark.parametrize("given", [{"seeds": "3"}, {"budget": "9"}, {"minutes": "x"}, {"steps": "4"}, {"clip": "1"}])
def test_a_text_for_a_number_is_named(given):
    ((name, value),) = given.items()
    with pytest.raises(UserError, match=rf"compare\({name}='{value}'\) is a text, and takes numbers"):
        planned("m", "a.jsonl", {}, given)


def test_whole_numbers_of_any_make_are_ints_and_others_are_refused(tmp_path):
    given = {"budgets": np.array([1000, 2000]), "seeds": np.int64(2), "steps": 4.0, "batch_size": np.float64(8)}
    made = planned("model", {"train": str(tmp_path / "rows.jsonl")}, {"kind": "classification"}, given)
    found = (*made.budgets, *made.seeds, made.settings.steps, made.settings.batch_size)
    assert found == (1000, 2000, 0, 1, 4, 8) and {type(one) for one in found} == {int}
    for name, value in {"budget": 1500.5, "steps": 4.5, "batch_size": float("inf")}.items():
        with pytest.raises(UserError, match=f"^--{name.replace('_', '-')} {value} is no whole number; give one"):
            check(planned("model", {"train": str(tmp_path / "rows.jsonl")}, {"kind": "classification"}, {name: value}))
