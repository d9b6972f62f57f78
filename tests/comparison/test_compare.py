"""A whole comparison on a tiny model: the protocol, what is written, and what survives."""

import copy
import dataclasses
import json
import os
import random
import re
import shutil
import signal
import socket
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import tinyrun
import torch
import transformers
import warm
from safetensors.torch import load_file

import tunescope as ts
from tunescope.comparison import arms, comparison, protocol, run, saved_artifact
from tunescope.comparison.comparison import ask, compare, resume
from tunescope.comparison.conclusion import no_artifact
from tunescope.comparison.entry import _entry as made_ready
from tunescope.comparison.standing import Standing, best_on_dev
from tunescope.data.read import read
from tunescope.errors import UserError
from tunescope.methods.deltas.head import Head
from tunescope.methods.deltas.lora import LoRA
from tunescope.report.verdict.verdict import decide
from tunescope.system import files, run_folder, sealed_json, tensor_files
from tunescope.trial import plan, plan_check, plan_json
from tunescope.trial.arm import Arm
from tunescope.trial.open import open_bench
from tunescope.trial.rates import grid
from tunescope.trial.train import loop
from tunescope.trial.train.settings import Settings

ARMS = ("zero-shot", "demos:k=1", "soft", "lora")


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


def question(material, **changes):
    model, data = material
    fields = {
        "model": model,
        "data": data,
        "task": {"kind": "classification"},
        "arms": ARMS,
        "budgets": (256,),
        "seeds": (0, 1),
        "trials": 2,
        "settings": Settings(steps=12, batch_size=8, eval_every=4, patience=3),
    }
    return plan_check.check(plan.Plan(**({"beyond": 0} | fields | changes)))


@pytest.fixture(scope="module")
def bench(material):
    return open_bench(question(material))


def on(bench, asked, folder, **options):
    """`asked` on a model that is loaded already."""
    bench.plan = asked
    bench.rows.clear()
    return comparison.run(asked, folder, tinyrun.opened(bench), by_name=True, quiet=True, **options)


@pytest.fixture(scope="module")
def done(bench, material, tmp_path_factory):
    return on(bench, question(material), tmp_path_factory.mktemp("done") / "run")


def numbers(results):
    """results.json without what a clock or a meter read."""
    if isinstance(results, dict):
        left = {"created", "seconds", "memory_mb"}
        return {key: numbers(value) for key, value in results.items() if key not in left}
    return [numbers(value) for value in results] if isinstance(results, list) else results


def arm(found, name):
    return next(one for one in found.results["arms"] if one["name"] == name)


def test_results_hold_what_the_contract_says(done):
    results = json.loads((done.folder / "results.json").read_text())
    assert results == {**done.results, "digest": results["digest"]}
    assert {"version", "command", "created", "versions", "machine", "model", "data", "task"} <= results.keys()
    assert {"protocol", "arms", "comparisons", "verdict", "best"} <= results.keys()
    assert results["data"]["test"]["rows"] == 32
    assert [one["group"] for one in results["arms"]] == ["none", "text", "context", "delta"]
    assert all(one["status"] == "done" and one["interval"][0] <= one["score"] for one in results["arms"])
    assert len(results["comparisons"]) == len(ARMS) - 1
    assert (done.folder / "report.html").stat().st_size > 1000


def test_every_trained_arm_has_the_same_trials_and_seeds(done):
    for name in ("soft", "lora"):
        assert [trial["seed"] for trial in arm(done, name)["trials"]] == [0, 0]
        assert [run["seed"] for run in arm(done, name)["runs"]] == [0, 1]
        assert all(len(run["stats"]) == 32 for run in arm(done, name)["runs"])
    assert [run["seed"] for run in arm(done, "demos:k=1")["runs"]] == [0, 1]
    assert [run["seed"] for run in arm(done, "zero-shot")["runs"]] == [0]


def test_the_chosen_rate_is_the_best_on_dev_and_only_chosen_runs_saw_the_test_set(done):
    chosen = set()
    for one in done.results["arms"]:
        chosen |= {run["id"] for run in one["runs"]}
        if one["trials"]:
            best = max(one["trials"], key=lambda trial: (trial["dev"], -trial["loss"]))
            assert one["learning_rate"] == best["learning_rate"]
            assert best["id"] == one["runs"][0]["id"]
    assert {path.parent.name for path in done.folder.glob("arms/*/test.json")} == chosen
    assert {path.parent.name for path in done.folder.glob("arms/*/artifact")} <= chosen


def test_ties_go_to_the_smaller_rate_the_smaller_arm_and_the_earlier_one(bench, material):
    entry = made_ready(bench, Arm("lora", "lora", None))
    outcomes = {
        todo.id: {"id": todo.id, "status": "done", "dev": 0.5, "learning_rate": todo.rate, "seed": 0}
        | {"curve": [{"step": 12, "loss": 1.0, "dev": 0.5}]}
        for todo in entry.trials
    }
    protocol._choose(bench, entry, outcomes)
    rates = [todo.rate for todo in entry.trials]
    assert entry.standing.learning_rate == min(rates)
    outcomes[entry.trials[rates.index(max(rates))].id]["curve"][-1]["loss"] = 0.9
    protocol._choose(bench, entry, outcomes)
    assert entry.standing.learning_rate == max(rates)  # of equal scores the lower loss

    def standing(name, stored, loss=1.0):
        run = {"dev": 0.5, "curve": [{"step": 12, "loss": loss, "dev": 0.5}]}
        return Standing(name, parameters={"stored": stored}, runs=[run])

    assert best_on_dev([standing("a", 9), standing("b", 3), standing("c", 3)]).name == "b"
    assert best_on_dev([standing("a", 9, 0.1), standing("b", 3), standing("c", 3, 0.9)]).name == "c"
    assert best_on_dev([Standing("a", status="diverged", runs=[{"dev": 0.9}])]) is None


def test_the_test_numbers_are_those_of_the_saved_artifact(done, bench):
    run = arm(done, "lora")["runs"][1]
    artifacts = ts.load(done.folder / "arms" / run["id"] / "artifact")
    with ts.attach(bench.model, *artifacts, tokenizer=bench.tokenizer) as tuned:
        rows = bench.task.encode(bench.splits.test, bench.tokenizer, model_kind="decoder", room=64 - tuned.positions)
        predictions = bench.task.predict(bench.model, rows, bench.tokenizer)
    assert [list(one.stats) for one in predictions] == run["stats"]


def test_the_best_artifact_is_kept_with_what_is_needed_to_use_it(done):
    best = max(done.results["arms"], key=lambda one: sum(run["dev"] for run in one["runs"]) / len(one["runs"]))
    if done.results["best"]["path"] is None:
        assert done.results["best"]["arm"] == "zero-shot" == best["name"]
        with pytest.raises(UserError, match="the model as it is, zero-shot, does best on dev"):
            done.best()
    else:
        about = json.loads((done.folder / "best" / "tunescope.json").read_text())["about"]
        assert about["task"]["template"] == "{text}\nLabel:"
        assert len(done.best()) == 1


@pytest.mark.parametrize(
    ("arm", "line"),
    [
        ("zero-shot", "no artifact: the model as it is, zero-shot, does best on dev"),
        (
            "demos:k=2,choose=similar",
            "no artifact: similar, best on dev, changes only the words that the model is given",
        ),
        ("bias", ""),
    ],
)
def test_why_there_is_no_best_artifact_is_told(bench, material, tmp_path, arm, line):
    typed = f"similar={arm}" if "similar" in arm else arm
    found = on(bench, question(material, arms=(typed,), seeds=(0,), trials=1), tmp_path / "run")
    assert (found.folder / "best").exists() == (not line)
    told = no_artifact(found.results)
    assert told.startswith(line) and bool(told) == bool(line)
    if line:
        with pytest.raises(UserError, match=re.escape(f"run.best() of {found.folder}: {line}")):
            found.best()


def test_where_no_arm_finished_there_is_no_artifact_for_that(tmp_path):
    results = {"best": None, "arms": []}
    assert no_artifact(results) == "no artifact: no arm finished"
    with pytest.raises(UserError, match="no artifact: no arm finished"):
        comparison.Comparison(tmp_path, results).best()
    with pytest.raises(UserError, match=r"best is gone\. .* type: tunescope resume "):
        comparison.Comparison(tmp_path, {"best": {"arm": "lora", "path": "best"}, "arms": []}).best()


def test_the_artifact_that_an_unstable_verdict_names_is_there(bench, material, tmp_path):
    rates = {"zero-shot": (0.5,), "soft": (0.55, 0.9, 0.56), "lora": (0.9, 0.9, 0.9)}
    asked = question(material, arms=tuple(rates), seeds=(0, 1, 2), trials=1)
    results = copy.deepcopy(on(bench, asked, tmp_path / "run").results)
    results["comparisons"] = []
    for one in results["arms"]:  # the scores are made up, so that one seed in three suffices
        for entry, rate in zip(one["runs"], rates[one["name"]], strict=True):
            entry["stats"] = [[float(row < rate * 600), float(row % 2), 0.0] for row in range(600)]
            entry |= {"dev": rate, "test": {"accuracy": rate}}
        one |= dict.fromkeys(("interval", "chosen", "near_best", "score"))
    verdict = decide(results)
    assert verdict["reason"] == "unstable"
    (named,) = re.findall(r"\(RUN/(\S+)\)", verdict["sentences"][0])
    about = json.loads((tmp_path / "run" / named / "tunescope.json").read_text())["about"]
    assert (about["arm"], about["seed"]) == ("soft", 1)


def test_results_and_page_hold_no_path_and_no_host(done, material):
    for name in ("results.json", "report.html"):
        text = (done.folder / name).read_text()
        for secret in (str(Path(material[0]).parent), str(done.folder), socket.gethostname()):
            assert secret not in text
    assert done.results["model"]["name"] == "model"
    assert done.results["data"]["train"]["path"] == "train.jsonl"


def test_the_table_and_the_verdict_print(done):
    text = str(done)
    assert "lora" in text and "Verdict: " in text


def test_a_finished_run_is_not_trained_again(done, bench, material, monkeypatch):
    monkeypatch.setattr(run, "train", lambda *_, **__: pytest.fail("trained again"))
    again = on(bench, question(material), done.folder)
    assert numbers(again.results) == numbers(done.results)


def test_data_come_in_the_same_order_for_every_arm(bench, material, tmp_path, monkeypatch):
    seen, plain = {}, loop.update

    def spy(problem, settings, optimizer, rows, step):
        seen.setdefault((len(problem.parameters), problem.rates[next(iter(problem.rates))]), []).append(rows)
        return plain(problem, settings, optimizer, rows, step)

    monkeypatch.setattr(loop, "update", spy)
    on(bench, question(material, arms=("soft", "lora", "bias"), seeds=(5,)), tmp_path / "run")
    orders = list(seen.values())
    assert len(orders) >= 3
    assert all(order == orders[0] for order in orders)


def test_an_arm_that_diverges_is_told_and_the_others_go_on(bench, material, tmp_path, monkeypatch):
    monkeypatch.setattr(LoRA, "learning_rates", (1e33, 1e34, 1e35))
    found = on(bench, question(material), tmp_path / "run")
    lora = arm(found, "lora")
    assert lora["status"] == "diverged"
    assert "a smaller learning rate may help" in lora["reason"]
    assert "seed 0, learning rate 1e+33: loss" in lora["reason"]
    assert lora["score"] is None and lora["runs"] == []
    assert {trial["status"] for trial in lora["trials"]} == {"diverged"}
    assert arm(found, "soft")["status"] == "done"


def test_a_rate_that_diverges_loses_to_one_that_does_not(bench, material, tmp_path):
    found = on(bench, question(material, arms=("lora",), rates=(1e34, 1e-3)), tmp_path / "run")
    lora = arm(found, "lora")
    assert [trial["status"] for trial in lora["trials"]] == ["done", "diverged"]
    assert (lora["status"], lora["learning_rate"]) == ("done", 1e-3)


def test_a_rate_that_leaves_finite_losses_and_no_scores_has_diverged(bench, material, tmp_path, monkeypatch):
    once = Settings(steps=2, batch_size=8, eval_every=1)
    asked = question(material, arms=("lora",), rates=(1e18, 1e-3), seeds=(0,), settings=once)
    found = on(bench, asked, tmp_path / "run")
    lora = arm(found, "lora")
    assert [trial["status"] for trial in lora["trials"]] == ["done", "diverged"]
    assert "are no numbers (NaN), first on row" in lora["trials"][1]["reason"]
    assert not any("Not tried" in remark for remark in lora["remarks"])
    assert not any("could be tried" in sentence for sentence in found.results["verdict"]["sentences"])
    monkeypatch.setattr(run, "train", lambda *_, **__: pytest.fail("tried again"))
    assert numbers(on(bench, asked, tmp_path / "run").results) == numbers(found.results)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (MemoryError("no room"), "out of memory", "the device ran out of memory: no room"),
        (ZeroDivisionError("oops"), "failed", "ZeroDivisionError: oops (see arms/"),
    ],
)
def test_an_arm_that_fails_is_told_and_tried_again_by_resume(
    bench, material, tmp_path, monkeypatch, error, status, reason
):
    asked, plain = question(material, arms=("zero-shot", "lora"), seeds=(0,)), run.train

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(run, "train", fail)
    found = on(bench, asked, tmp_path / "run")
    assert (arm(found, "lora")["status"], arm(found, "zero-shot")["status"]) == (status, "done")
    assert reason in arm(found, "lora")["reason"]
    monkeypatch.setattr(run, "train", plain)
    assert arm(on(bench, asked, tmp_path / "run"), "lora")["status"] == "done"


def test_a_refused_arm_is_told_and_the_others_go_on(bench, material, tmp_path):
    names = ("lora", "lora:sites=attn.w")
    found = on(bench, question(material, arms=names, budgets=(), seeds=(0,), trials=1), tmp_path / "run")
    assert [one["status"] for one in found.results["arms"]] == ["done", "refused"]
    assert "does not have" in arm(found, "lora:sites=attn.w")["reason"]


@pytest.mark.parametrize(
    ("typo", "hint"), [("prefix:lenght=3", "Did you mean 'length'"), ("lroa", "Did you mean 'lora'")]
)
def test_a_typo_in_one_arm_stops_the_run_before_anything_is_trained(bench, material, tmp_path, typo, hint):
    asked = question(material, arms=("lora", typo), budgets=(), seeds=(0,), trials=1)
    with pytest.raises(UserError, match=hint):
        on(bench, asked, tmp_path / "run")
    assert not list((tmp_path / "run").glob("arms/*"))


def test_all_refused_is_an_error(bench, material, tmp_path):
    asked = question(material, arms=("lora", "prefix"), budgets=(3,))
    with pytest.raises(UserError, match="every arm was refused; lora: LoRA cannot be had for 3 parameters"):
        on(bench, asked, tmp_path / "run")
    asked = question(material, arms=("demos:k=4,order=best,orders=all",))
    with pytest.raises(UserError, match=r"^every arm was refused; demos:k=4,order=best,orders=all: \d+ demonstr"):
        on(bench, asked, tmp_path / "demos")


def test_a_budget_without_room_for_any_delta_is_refused_before_the_contexts_are_trained(bench, material, tmp_path):
    alone = question(material, arms=("soft", "lora"), budgets=(40,), seeds=(0,), trials=1)
    told = (
        r"The budget leaves no delta to compare with a context, so there would be no verdict; lora: LoRA cannot be had "
        r"for 40 parameters: its smallest size \(rank=1\) stores ([\d,]+)\. .* Type: --budget (\d+), or more$"
    )
    with pytest.raises(UserError, match=told) as problem:
        on(bench, alone, tmp_path / "run")
    stored, typed = re.search(told, str(problem.value)).groups()
    assert stored.replace(",", "") == typed and not list((tmp_path / "run").glob("arms/*"))
    both = question(material, arms=("soft", "lora:rank=1", "lora"), budgets=(40,), seeds=(0,), trials=1)
    assert arm(on(bench, both, tmp_path / "both"), "lora")["status"] == "refused"


def test_budgets_are_met_and_told(bench, material):
    bench.plan = question(material)

    def ready(text, budget):
        return arms.ready(Arm(text, text, budget), bench)

    soft, lora = ready("soft", 256), ready("lora", 300)
    assert (soft.note, soft.counts["stored"]) == ("256 exactly", 256)
    assert lora.note == f"nearest reachable {lora.counts['stored']}; {300 - lora.counts['stored']} left"
    assert ready("lora:rank=3", 128).specs == (LoRA(rank=3),)
    assert "size as typed, whatever the budget of 128" in ready("lora:rank=3", 128).note
    assert "no size to set" in ready("full", 128).note
    assert ready("prefix:length=2+lora", 2000).specs[0].length == 2
    assert ready("demos:k=2+lora", 300).group == "delta"
    grouped = {text: ready(text, None).group for text in ("full", "full:only=*ln_*", "prefix:length=2+full:only=*ln_*")}
    assert list(grouped.values()) == ["full", "delta", "both"]
    assert ready("demos:k=2", 300).counts["stored"] == 0 < ready("demos:k=2", 300).counts["live"]


def test_several_budgets_repeat_the_arms_that_have_a_size():
    names = [one.name for one in arms.listed(("zero-shot", "lora", "full", "lora:rank=2"), (256, 1024), "decoder")]
    assert names == ["zero-shot", "lora @ 256", "lora @ 1,024", "full", "lora:rank=2"]


def test_an_arm_can_have_a_name():
    (one,) = arms.listed(("mam=prefix:length=3+adapter:placement=parallel",), (), "decoder")
    assert (one.name, one.text) == ("mam", "prefix:length=3+adapter:placement=parallel")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("lora", "lora"), "--arms has 'lora' twice; drop one, or name them: one=lora two=lora"),
        (("a=lora", "a=prefix"), "--arms gives the name 'a' to two arms; give one of them another."),
        (("lora", "lora=prefix"), "--arms gives the name 'lora' to two arms; give one of them another."),
        ((" ",), "--arms ' ' is empty. Type `tunescope arms`"),
    ],
)
@pytest.mark.parametrize("budgets", [(), (300,), (300, 3000)])
def test_arms_that_cannot_be_listed_are_refused(texts, message, budgets):
    with pytest.raises(UserError, match=message):
        arms.listed(texts, budgets, "decoder")


def test_a_budget_given_twice_is_told_as_such():
    with pytest.raises(UserError, match=r"^--budget has 3,000 twice; drop one\.$"):
        arms.listed(("lora", "prefix"), (3000, 3000), "decoder")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("demos:k=0", "demos:k=0: at least one demonstration; type demos:k=4"),
        (
            "demos:n=3",
            "Arm 'demos:n=3': 'demos' has no field 'n'. Its fields: k, choose, encoder, sets, order, orders, calib",
        ),
        ("demos:k=999", "999 demonstrations a label are asked for"),
        ("head", "the head is added to every arm of an encoder's classification"),
        ("head+lora", "the head is added to every arm of an encoder's classification"),
    ],
)
def test_an_arm_that_this_model_cannot_have_is_refused(bench, text, message):
    with pytest.raises(UserError, match=message):
        arms.ready(Arm(text, text), bench)


def test_rates_of_composed_methods_are_walked_together(bench):
    pair = arms.ready(Arm("a", "soft+lora"), bench)
    soft, lora = pair.specs
    assert grid(pair.grids, 3, ()) == list(zip(sorted(soft.learning_rates), sorted(lora.learning_rates), strict=True))
    assert grid(pair.grids, 1, ()) == [(sorted(soft.learning_rates)[1], sorted(lora.learning_rates)[1])]
    assert grid(pair.grids, 2, ())[1] == (max(soft.learning_rates), max(lora.learning_rates))
    assert grid(pair.grids, 3, (0.2, 0.1)) == [(0.1, 0.1), (0.2, 0.2)]
    with pytest.raises(UserError, match="--trials 4: the methods' own grids have 3 learning rates; name more"):
        grid(pair.grids, 4, ())


def test_rows_longer_than_the_model_are_cut_counted_and_told(bench, material, tmp_path):
    found = on(bench, question(material, arms=("soft:length=57", "lora"), seeds=(0,), trials=1), tmp_path / "run")
    told = arm(found, "soft:length=57")["remarks"][-1]
    start = "inputs cut to fit the model's positions beside what stands in front: "
    assert re.fullmatch(start + r"[\d,]+ train, [\d,]+ dev, [\d,]+ test rows.", told)
    assert not any(remark.startswith("inputs cut") for remark in arm(found, "lora")["remarks"])
    assert told in " ".join(str(found).split())


def test_a_context_that_fills_the_model_is_refused(bench, material, tmp_path):
    found = on(bench, question(material, arms=("soft:length=70", "lora"), seeds=(0,), trials=1), tmp_path / "run")
    assert arm(found, "soft:length=70")["status"] == "refused"
    assert "the context takes 70 positions and the model has 64; make it shorter" in str(found.results["arms"])
    assert not list((tmp_path / "run" / "arms").glob("*.tmp-*"))  # nothing in it could be gone on with


KILLED = """
import os, signal, sys, json
from pathlib import Path
from tunescope.comparison import run
from tunescope.comparison.comparison import ask
from tunescope.trial.plan_json import from_json
from tunescope.trial.train import loop
run.SAVE_EVERY = 0.0
plain, left = loop.update, int(sys.argv[2])
def step(*given):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(*given)
loop.update = step
asked = from_json(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[1]))
ask(asked, Path(sys.argv[3]), quiet=True)
"""


@pytest.mark.parametrize("life", [random.Random(seed).randrange(1, 65) for seed in range(2)])
def test_a_killed_run_is_resumed_to_the_same_numbers(done, bench, material, tmp_path, life, capsys):
    config = tmp_path / "asked.json"
    config.write_text(json.dumps(plan_json.to_json(question(material))))
    killed = warm.run(["-c", KILLED, config, life, tmp_path / "run"])
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "run" / "results.json").exists()

    found = on(bench, question(material), tmp_path / "run")

    assert "which is gone; taking over" in capsys.readouterr().err
    assert numbers(found.results) == numbers(done.results)
    assert sorted(path.name for path in (tmp_path / "run" / "arms").iterdir()) == sorted(
        path.name for path in (done.folder / "arms").iterdir()
    )


def saved_steps(folder):
    """The step of every training state that a killed run left."""
    return [json.loads(path.read_text())["state"]["step"] for path in folder.glob("arms/*.tmp-*/state.json")]


def tensors(folder):
    return {path.parent.parent.name: load_file(path) for path in folder.glob("arms/*/artifact/*.safetensors")}


@pytest.mark.parametrize(
    ("arm_asked", "trials", "together", "life", "left"),
    [("lora:dropout=0.3", 1, 1, 8, [7]), ("lora:dropout=0.3", 2, 1, 17, [4]), ("lora", 2, 2, 16, [7, 7])],
    ids=["alone", "the second of two", "in shared passes"],
)
def test_a_resumed_run_begins_at_its_saved_step_and_ends_with_the_same_bits(
    material, tmp_path, monkeypatch, arm_asked, trials, together, life, left
):
    settings = Settings(steps=12, batch_size=8, eval_every=4, patience=9)
    changes = {"seeds": (0,), "trials": trials, "together": together, "settings": settings}
    asked = question(material, arms=(arm_asked,), budgets=(), **changes)
    whole = ask(asked, tmp_path / "whole", quiet=True)
    config = tmp_path / "asked.json"
    config.write_text(json.dumps(plan_json.to_json(asked)))
    assert warm.run(["-c", KILLED, config, life, tmp_path / "run"]).returncode == -signal.SIGKILL
    assert saved_steps(tmp_path / "run") == left
    taken, plain = {}, loop.update

    def spy(problem, settings, optimizer, rows, step):
        taken.setdefault(max(problem.rates.values()), []).append((step, rows))
        return plain(problem, settings, optimizer, rows, step)

    monkeypatch.setattr(loop, "update", spy)
    found = resume(tmp_path / "run", quiet=True)
    assert [[step for step, _ in steps] for steps in taken.values()] == [list(range(first, 12)) for first in left]
    rest = {rate: dict(steps) for rate, steps in taken.items()}
    taken.clear()
    ask(asked, tmp_path / "again", quiet=True)
    for rate, steps in rest.items():  # the batches, too, are those that an undisturbed run has at these steps
        assert steps == dict(taken[rate][min(steps) :])
    assert numbers(found.results) == numbers(whole.results)
    ended, undisturbed = tensors(tmp_path / "run"), tensors(tmp_path / "whole")
    assert ended.keys() == undisturbed.keys() != set()
    for name, values in undisturbed.items():
        assert all(torch.equal(ended[name][key], value) for key, value in values.items())


def test_after_a_failed_write_nothing_is_lost(bench, material, tmp_path, monkeypatch):
    asked = question(
        material,
        arms=("zero-shot", "lora"),
        seeds=(0,),
        trials=1,
        settings=Settings(steps=2, batch_size=8, eval_every=1),
    )
    monkeypatch.setattr(run, "SAVE_EVERY", 0.0)
    calls, fail_at = 0, 0

    def counted(plain, *given, **named):
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise OSError(28, "No space left on device")
        return plain(*given, **named)

    for place, name in ((files, "write"), (tensor_files, "write"), (os, "fsync"), (os, "replace"), (os, "rename")):
        monkeypatch.setattr(place, name, partial(counted, getattr(place, name)))
    want = numbers(on(bench, asked, tmp_path / "whole").results)
    total = calls
    assert total > 20
    for fail_at in range(1, total + 1, 5):  # each of them: `make soak`
        calls, folder = 0, tmp_path / f"run-{fail_at}"
        with pytest.raises(UserError, match="the disk is full while writing to ") as told:
            on(bench, asked, folder)
        begun = (folder / "config.json").exists()
        assert str(told.value).endswith(f"type: tunescope resume {folder}" if begun else "type the same command again")
        calls = -(10**9)
        assert numbers(on(bench, asked, folder).results) == want


def test_two_workers_give_the_numbers_of_one(done, material, tmp_path):
    found = ask(question(material), tmp_path / "run", workers=2, quiet=True)
    assert numbers(found.results) == numbers(done.results)


def half_done(folder):
    """(job, process) of every run that a living process has half done in the folder, which is named after both."""
    found = [(path.name.partition(".")[0], path.name.rpartition("-")[2]) for path in folder.glob("arms/*.tmp-*")]
    return [(name, pid) for name, pid in found if lives(pid)]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def watched(folder, look):
    """`look` at what is half done, over and over."""
    over = threading.Event()

    def watch():
        while not over.wait(0.002):
            look(half_done(folder))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def test_after_one_killed_worker_the_jobs_that_follow_run_side_by_side_to_the_same_numbers(material, tmp_path):
    asked = question(
        material, arms=("soft", "lora"), seeds=(0,), trials=3, settings=Settings(steps=100, batch_size=8, eval_every=10)
    )
    want = numbers(ask(asked, tmp_path / "whole", quiet=True).results)
    before, later = set(), set()

    def look(now):
        if not before and len(now) == 2:
            before.update(name for name, _ in now)
            os.kill(int(now[0][1]), signal.SIGKILL)
        elif before:
            later.add(len({name for name, _ in now} - before))

    with watched(tmp_path / "run", look):
        found = ask(asked, tmp_path / "run", workers=2, quiet=True)
    assert max(later) == 2
    assert numbers(found.results) == want


def test_a_job_whose_process_is_killed_twice_costs_itself_alone(material, tmp_path):
    asked = question(
        material,
        arms=("zero-shot", "lora"),
        seeds=(0,),
        trials=2,
        settings=Settings(steps=200, batch_size=8, eval_every=20),
    )
    guilty, killed = [], set()

    def look(now):
        guilty.extend(name for name, _ in now if not guilty)
        for name, pid in now:
            if name in guilty and pid not in killed:
                killed.add(pid)
                os.kill(int(pid), signal.SIGKILL)

    with watched(tmp_path / "run", look):
        found = ask(asked, tmp_path / "run", workers=2, quiet=True)
    trials = {trial["id"]: trial for trial in arm(found, "lora")["trials"]}
    assert len(killed) == 2 and trials[guilty[0]]["status"] == "out of memory"
    assert trials[guilty[0]]["reason"] == (
        "its process was killed twice, most likely for want of memory; try fewer --workers or a smaller --batch-size"
    )
    assert [trial["status"] for name, trial in trials.items() if name != guilty[0]] == ["done"]
    assert arm(found, "zero-shot")["status"] == arm(found, "lora")["status"] == "done"


def test_another_question_in_the_same_folder_is_refused_and_nothing_is_lost(done, bench, material):
    before = (done.folder / "results.json").read_bytes()
    with pytest.raises(
        UserError, match=r"holds another comparison \(it differs in: seeds, trials\); name a new folder"
    ):
        on(bench, question(material, seeds=(0, 1, 2), trials=3), done.folder)
    assert (done.folder / "results.json").read_bytes() == before


def test_what_others_have_in_a_folder_is_not_written_over(bench, material, tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "mine.txt").write_text("mine")
    with pytest.raises(
        UserError, match=r"holds something that is no comparison \(best\)\. Name a new folder with --out"
    ):
        on(bench, question(material), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["best"] and (tmp_path / "best" / "mine.txt").exists()
    (tmp_path / "log.txt").write_text("what the shell writes there")
    shutil.rmtree(tmp_path / "best")
    run_folder.check_own(tmp_path, "comparison", "arms")
    (tmp_path / "notes.tmp-1").write_text("mine")
    with pytest.raises(UserError, match=r"no comparison \(notes\.tmp-1\)"):
        run_folder.check_own(tmp_path, "comparison", "arms")


def test_what_differs_in_a_folder_is_named_however_deep(tmp_path):
    old = {
        "version": run_folder.VERSION,
        "recipe": "a",
        "settings": {"course": {"steps": 1, "rates": [1]}, "lines": {}},
    }
    run_folder.write_config(tmp_path, old)
    new = old | {"settings": {"course": {"steps": 2, "rates": [1]}, "lines": []}}
    with pytest.raises(UserError, match=r"it differs in: settings\.course\.steps, settings\.lines\)"):
        run_folder.check_config(tmp_path, new)


def test_words_that_a_head_does_not_say_are_refused_in_a_new_run_and_stay_in_an_old_one(bench, material, tmp_path):
    kept = bench.task
    bench.task = dataclasses.replace(kept, by="head", words={"neg": "bad", "pos": "good"}, template="{text}")
    try:
        with pytest.raises(UserError, match="--words have no use: an encoder's head answers with no word"):
            on(bench, question(material), tmp_path / "new")
    finally:
        bench.task = kept
    assert not (tmp_path / "new" / "config.json").exists()


def test_the_folder_of_a_model_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(
        UserError, match=f"^{tmp_path} is not the folder of a run: its config.json is of something else"
    ):
        run_folder.read_config(tmp_path)


@pytest.mark.parametrize("name", ["results.json", "config.json"])
def test_a_folder_of_a_newer_tunescope_is_refused(tmp_path, name):
    (tmp_path / name).write_text('{"version": 99}')
    read = run_folder.read_results if name == "results.json" else run_folder.read_config
    with pytest.raises(UserError, match=f"{name} has version 99, and this tunescope reads .*pip install --upgrade"):
        read(tmp_path)


def test_results_without_a_version_are_damaged_and_no_newer_ones(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(files.Damaged, match=r"results\.json is damaged: it has no version\..* tunescope resume "):
        run_folder.read_results(tmp_path)


def test_a_run_whose_question_is_lost_goes_on_by_the_command_that_began_it(done, bench, material, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done.folder, folder)
    (folder / "config.json").unlink()
    files.remove(folder / "results.json")
    asked = json.loads((done.folder / "config.json").read_text())
    on(bench, plan_json.from_json(asked, done.folder / "config.json"), folder)
    own = {path.name for path in (done.folder / "arms").iterdir()}
    assert {path.name for path in (folder / "arms").iterdir()} == own and (folder / "results.json").exists()


@pytest.mark.parametrize(("kind", "pieces"), [("search", "seeds"), ("run of a recipe", "units")])
def test_a_comparison_whose_question_is_lost_is_not_taken_for_another_run(done, tmp_path, kind, pieces):
    shutil.copytree(done.folder / "arms", tmp_path / "arms")
    run_folder.check_own(tmp_path, "comparison", "arms")
    for _ in range(2):
        with pytest.raises(UserError, match=rf"holds something that is no {kind} \(arms\)"):
            run_folder.check_own(tmp_path, kind, pieces)
        (tmp_path / pieces).mkdir(exist_ok=True)
        sealed_json.put(tmp_path / pieces / "one.json", {"a": 1})  # beside arms it tells no more whose the folder is


def test_a_folder_that_is_removed_ends_a_comparison_and_is_not_made_anew(bench, material, tmp_path, monkeypatch):
    finish = run_folder.finish

    def gone(work, folder, name, result):
        files.remove(folder)
        finish(work, folder, name, result)

    monkeypatch.setattr(run_folder, "finish", gone)
    with pytest.raises(
        files.DiskError, match=r"run was removed while the run was at work\. .* the same command again\.$"
    ):
        on(bench, question(material, arms=("zero-shot", "lora:rank=2")), tmp_path / "run")
    assert not (tmp_path / "run" / "results.json").exists()


def test_an_artifact_that_is_damaged_is_told(done, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done.folder, folder)
    assert not list(saved_artifact.damaged(folder))
    shutil.copytree(next(folder.glob("arms/*/artifact")).parent, folder / "arms" / "a.tmp-b-1")
    (folder / "arms" / "a.tmp-b-1" / "artifact" / "tensors.safetensors").write_bytes(b"")
    assert not list(saved_artifact.damaged(folder))  # it is half done, and goes
    tensors = min(folder.glob("arms/*/artifact/tensors.safetensors"), key=lambda path: "tmp" in str(path))
    tensors.write_bytes(tensors.read_bytes()[:50])
    assert list(saved_artifact.damaged(folder)) == [
        f"note: {tensors.parent} is damaged. It is made again where it is needed."
    ]


def test_resume_of_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config.json does not exist: .* is not the folder of a run"):
        resume(tmp_path)


def test_resume_of_a_run_that_had_a_loaded_model_says_how(tmp_path, bench, material):
    data = material[1]
    found = compare(
        bench.model, data, tokenizer=bench.tokenizer, arms=["zero-shot"], seeds=1, out=tmp_path / "run", quiet=True
    )
    assert found.results["best"] == {"arm": "zero-shot", "path": None}
    with pytest.raises(UserError, match=r"begun from Python with a loaded model .* call compare\(\.\.\., out="):
        resume(tmp_path / "run")


def test_a_config_that_was_edited_badly_is_refused_by_field(tmp_path, material):
    config = plan_json.to_json(question(material)) | {"version": 1, "trials": "many"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"config.json: 'trials' cannot be used .*; start the comparison anew"):
        resume(tmp_path)


def test_a_setting_that_there_is_not_is_refused_by_name(material, tmp_path):
    kept = plan_json.to_json(question(material))
    with pytest.raises(UserError, match=r"config.json: 'settings.stepz' cannot be used \(there is none\)"):
        plan_json.from_json(kept | {"settings": kept["settings"] | {"stepz": 9}}, tmp_path / "config.json")


def test_a_plan_survives_json(material, tmp_path):
    asked = question(material, rates=(1e-3, 0.1))
    assert plan_json.from_json(json.loads(json.dumps(plan_json.to_json(asked))), tmp_path) == asked


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 0}, "--trials 0 is too small; give a whole number of 1 or more"),
        ({"threads": 0}, "--threads 0 is too small"),
        ({"budgets": (0,)}, "--budget 0 is too small"),
        ({"rates": (0.0,)}, "--lr 0 is not a learning rate; give numbers above 0, such as --lr 1e-3 3e-3"),
        ({"seeds": (-1,)}, "--seeds -1: give how many, 1 or more"),
        ({"seeds": (1, 1)}, "give how many, 1 or more, or which"),
        ({"settings": Settings(steps=0, batch_size=8)}, "--steps 0 is too small"),
        ({"settings": Settings(steps=8, batch_size=0)}, "--batch-size 0 is too small"),
        ({"settings": Settings(batch_size=4, accumulate=5)}, "--accumulate 5 is more parts than a batch of 4"),
        ({"settings": Settings(warmup=1.5)}, "--warmup 1.5 is a share of the steps; give 0 or more"),
        ({"settings": Settings(clip=0.0)}, "--clip must be above 0 and --weight-decay at least 0"),
        ({"settings": Settings(clip=float("nan"))}, "--clip must be above 0 and --weight-decay at least 0, and finite"),
        (
            {"settings": Settings(weight_decay=float("inf"))},
            "--clip must be above 0 and --weight-decay at least 0, and",
        ),
        ({"settings": Settings(steps=10**30)}, r"--steps 10*0 is too large; give a whole number of at most 1000000000"),
        ({"minutes": float("inf")}, "--minutes inf is no time"),
        ({"max_seeds": 10**30}, r"--max-seeds 10*0 is too large; give a whole number of at most 1000"),
        ({"beyond": 10**30}, r"--beyond 10*0 is too large"),
        ({"budgets": (10**30,)}, r"--budget 10*0 is too large"),
        ({"longest_field": 0}, "--longest-field 0 is too small"),
        ({"settings": Settings(optimizer="adamv")}, "--optimizer 'adamv' is not known. Did you mean 'adamw'?"),
        ({"settings": Settings(schedule="step")}, "--schedule 'step' is not known.*constant, linear, cosine"),
        ({"settings": Settings(precision="half")}, "--precision 'half' is not known"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(material, changes, message):
    with pytest.raises(UserError, match=message):
        question(material, **changes)


def test_what_compare_cannot_do_with_a_loaded_model_is_said(bench, material, tmp_path):
    with pytest.raises(UserError, match=r"compare\(workers=2\) needs the model by name or folder"):
        compare(bench.model, material[1], tokenizer=bench.tokenizer, workers=2, out=tmp_path / "run")
    with pytest.raises(UserError, match="needs its tokenizer: compare"):
        compare(bench.model, material[1], out=tmp_path / "run")
    with pytest.raises(UserError, match="data has the parts tests, train; it needs 'train' and may have 'dev'"):
        compare("model", {"train": "a", "tests": "b"})
    with pytest.raises(UserError, match="--workers 0 is too small"):
        compare(material[0], material[1], workers=0, out=tmp_path / "run")


def test_threads_are_given_back(done):
    assert torch.get_num_threads() == THREADS


THREADS = torch.get_num_threads()


def test_an_encoder_gets_a_head_in_every_arm_and_it_alone_is_an_arm(material, tmp_path):
    config = transformers.BertConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    model = transformers.BertModel(config)
    found = compare(
        model,
        material[1],
        tokenizer=tinyrun.tokenizer(),
        arms=["zero-shot", "head", "lora", "prefix+lora"],
        budget=256,
        seeds=1,
        trials=1,
        steps=4,
        out=tmp_path / "run",
        quiet=True,
    )
    assert [one["group"] for one in found.results["arms"]] == ["none", "head", "delta", "both"]
    assert [one["status"] for one in found.results["arms"]] == ["refused", "done", "done", "done"]
    assert "an encoder has no answer before its head is trained" in arm(found, "zero-shot")["reason"]
    assert arm(found, "head")["parameters"]["trained"] == 2 * 16 + 2
    assert arm(found, "lora")["parameters"]["stored"] <= 256
    assert "beside a head of 34, the same in every arm" in arm(found, "lora")["budget_note"]
    heads = {one["name"]: one["head_learning_rate"] for one in found.results["arms"]}
    grids = {method: method.learning_rates[1] for method in (Head, ts.LoRA)}  # of one trial the middle of each
    assert heads == {"zero-shot": None, "head": None, "lora": grids[Head], "prefix+lora": grids[Head]}
    assert arm(found, "lora")["learning_rates"] == [grids[ts.LoRA]] != [grids[Head]]
    assert arm(found, "lora")["trials"][0]["head_learning_rate"] == grids[Head]
    assert found.results["task"]["template"] == "{text}"
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_rows_in_place_of_files_are_the_same_question_and_are_found_again(material, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {part: [dict(row) for row in read(path)] for part, path in material[1].items()}
    asked = {"arms": ["zero-shot", "prefix"], "budget": 256, "seeds": 1, "trials": 1, "steps": 2, "quiet": True}
    by_file = compare(material[0], material[1], out=tmp_path / "file", **asked)
    by_rows = compare(material[0], {part: iter(some) for part, some in rows.items()}, **asked)
    answers = [[one["runs"][0]["stats"] for one in run.results["arms"]] for run in (by_file, by_rows)]
    assert answers[0] == answers[1]
    assert by_rows.folder.parent == Path("runs")
    assert compare(material[0], rows, **asked).folder == by_rows.folder  # the same question, which is answered
    monkeypatch.chdir(tmp_path / "runs")
    again = ts.resume(by_rows.folder.name, quiet=True)
    assert [one["text"] for one in again.predict(rows["test"])] == [row["text"] for row in rows["test"]]
    for put in Path().glob("rows-*.jsonl"):
        put.unlink()
    with pytest.raises(UserError, match=r"was begun with .*rows-\w{12}\.jsonl.*, which are gone"):
        again.predict(rows["test"])
