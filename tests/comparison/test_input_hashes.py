"""What was read is what is used: workers and `resume` find the files of the start, or the run stops and says which."""

import hashlib
import json
import shlex
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import commands
import pytest
import tinyrun
import torch

from tunescope.comparison import comparison, workers
from tunescope.data import read
from tunescope.errors import UserError
from tunescope.system import machine
from tunescope.system.executors.local import Local
from tunescope.trial import begun_with, elsewhere, moved_files
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.train import loop
from tunescope.trial.train.settings import Settings


@pytest.fixture
def material(tmp_path):
    return tinyrun.write(tmp_path)


def question(material, *arms):
    model, data = material
    settings = Settings(steps=2, batch_size=8, eval_every=2)
    fixed = {"seeds": (0,), "trials": 1, "beyond": 0, "settings": settings}
    return check(Plan(model=model, data=data, task={"kind": "classification"}, arms=arms or ("zero-shot",), **fixed))


def other_rows(material):
    Path(material[1]["train"]).write_text("".join(json.dumps(row) + "\n" for row in tinyrun.rows(64, 9)))


def other_weights(material):
    tinyrun.model(seed=5).save_pretrained(material[0])


def edited(name, old, new):
    def change(material):
        path = Path(material[0]) / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


LIMIT = '"model_max_length":'
CHANGES = {
    "data": (other_rows, r"train.jsonl \(train\) had the hash"),
    "weights": (other_weights, "the weights of model had the hash"),
    "tokenizer": (edited("tokenizer.json", '"plot"', '"plott"'), "the tokenizer of model had the hash"),
    "limit": (
        edited("tokenizer_config.json", f"{LIMIT} 64", f"{LIMIT} 5"),
        "limit and chat template of model had the hash",
    ),
    "config": (edited("config.json", '"gelu_new"', '"relu"'), "the configuration of model had the hash"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_worker_that_finds_another_file_than_its_parent_stops_the_run(material, tmp_path, name):
    change, told = CHANGES[name]
    bench = open_bench(question(material))
    with workers.runner(bench, tmp_path / "run", 2, lambda *_: None, lambda *_: None) as runner:
        given = runner.near().given  # what every worker begins with
    workers._start(*given)
    change(material)
    with pytest.raises(UserError, match=f"{told} [0-9a-f]{{12}} and has [0-9a-f]{{12}}. What was done"):
        workers._start(*given)


def test_both_hashes_are_named_and_are_those_of_the_files(material):
    bench = open_bench(question(material))
    given = workers.Runner(bench, Path(), 2, lambda *_: None, lambda *_: None).near().given
    hashes = [hashlib.sha256(Path(material[1]["train"]).read_bytes()).hexdigest()]
    other_rows(material)
    hashes.append(hashlib.sha256(Path(material[1]["train"]).read_bytes()).hexdigest())
    with pytest.raises(UserError, match=f"{hashes[0][:12]} and has {hashes[1][:12]}"):
        workers._start(*given)


@pytest.mark.parametrize(("device", "gpus", "devices"), [("cuda", 3, ["cuda:0", "cuda:1", "cuda:2", "cuda:0"])])
def test_of_several_gpus_every_worker_has_one_in_turn(monkeypatch, device, gpus, devices):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert [elsewhere.own_device(device, place) for place in range(4)] == devices
    assert elsewhere.own_device("cuda:1", 0) == "cuda:1" and elsewhere.own_device("cpu", 2) == "cpu"
    assert machine.default_workers("model", device) == gpus


def test_the_gpu_of_the_parent_is_its_workers_as_long_as_there_are_some(material, tmp_path, monkeypatch):
    """It is told by the order of what is done: moved, begun, ended, moved back."""
    bench, done = open_bench(question(material)), []
    monkeypatch.setattr(bench.model, "to", lambda device: done.append(str(device)))
    for name in ("begin", "close"):
        monkeypatch.setattr(Local, name, lambda *given, name=name: done.append(name))
    monkeypatch.setattr(Local, "capacity", lambda self: 2)

    def begun(**fields):
        done.clear()
        with workers.runner(replace(bench, **fields), tmp_path, 2, lambda *_: None, lambda *_: None) as runner:
            runner._begin()
            assert done[-1] == "begin"
        return done

    assert begun(device=torch.device("cuda")) == ["cpu", "begin", "close", "cuda"]
    assert begun() == ["begin", "close"]
    bench.model.hf_device_map = {"a": 0, "b": 1}
    assert begun(device=torch.device("cuda")) == ["begin", "close"]


def test_a_file_that_changes_while_it_is_read_is_refused(material, monkeypatch):
    plain = read.read

    def slow(path, longest):
        rows = plain(path, longest)
        other_rows(material)
        return rows

    monkeypatch.setattr(read, "read", slow)
    with pytest.raises(UserError, match=r"train\.jsonl was changed while it was read"):
        open_bench(question(material))


def test_another_encoder_than_runs_were_named_by_is_refused(material, tmp_path):
    bench = open_bench(question(material))
    bench.encoders["encoder"] = "0" * 64
    with pytest.raises(UserError, match=r"encoder was changed while .*: its weights had the hash 0{12} "):
        bench._check_encoder("encoder", "1" * 64)
    bench._check_encoder("encoder", "0" * 64)


@pytest.fixture
def finished(material, tmp_path):
    return comparison.ask(question(material, "zero-shot", "lora:rank=1"), tmp_path / "run", quiet=True).folder


def held(folder):
    """Every file's bytes, but for the lock."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"}


@pytest.mark.parametrize("name", ["data", "weights"])
@pytest.mark.parametrize("whole", [True, False], ids=["finished", "half done"])
def test_a_run_whose_files_were_changed_is_left_as_it_is(material, finished, name, whole):
    if not whole:
        (finished / "results.json").unlink()
        shutil.rmtree(next(one for one in (finished / "arms").iterdir()))
    change, told = CHANGES[name]
    before = held(finished)
    change(material)
    with pytest.raises(UserError, match=f"{told} .*. Nothing was changed in it. .* --out FOLDER"):
        comparison.resume(finished, quiet=True)
    assert held(finished) == before


def test_a_run_of_an_older_version_is_told_by_its_results(material, finished):
    config = json.loads((finished / "config.json").read_text())
    (finished / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "read"}))
    comparison.resume(finished, quiet=True)
    assert json.loads((finished / "config.json").read_text())["read"] == config["read"]
    (finished / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "read"}))
    other_rows(material)
    with pytest.raises(UserError, match=CHANGES["data"][1]):
        comparison.resume(finished, quiet=True)


def test_what_is_the_same_again_goes_on(material, finished):
    rows = Path(material[1]["train"]).read_bytes()
    results = json.loads((finished / "results.json").read_text())
    other_rows(material)
    Path(material[1]["train"]).write_bytes(rows)
    other_weights(material)
    tinyrun.model().save_pretrained(material[0])
    again = comparison.resume(finished, quiet=True).results
    assert [one["runs"] for one in again["arms"]] == [one["runs"] for one in results["arms"]]


def test_a_run_whose_files_were_moved_goes_on_where_it_is_told_where_they_are(tmp_path, monkeypatch, capsys):
    model, data = tinyrun.write(tmp_path / "a")
    brief = ["--arms", "zero-shot", "lora:rank=1", "--steps", "2", "--seeds", "1", "--trials", "1", "--workers", "1"]
    words = [model, data["train"], "--test", data["test"], *brief, "--out", tmp_path / "a" / "run"]
    begun = commands.call(monkeypatch, capsys, "compare", *words)
    assert begun[0] == 0
    (tmp_path / "a").rename(tmp_path / "b")
    folder = tmp_path / "b" / "run"
    results, before = json.loads((folder / "results.json").read_text()), held(folder)
    code, _, err = commands.call(monkeypatch, capsys, "resume", folder, "--workers", "1")
    gone = " and ".join(str(tmp_path / "a" / name) for name in ("model", "train.jsonl", "test.jsonl"))
    assert code == 2 and held(folder) == before
    assert f"{folder} was begun with {gone}, which are gone. If it was moved, type the comparison again with" in err
    typed = shlex.split(err.partition("with the new path: tunescope ")[2].replace("NEW/", f"{tmp_path}/b/"))
    assert typed[-2:] == ["--out", str(folder)] and "--device" not in typed
    monkeypatch.setattr("tunescope.comparison.run._trained", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr("tunescope.comparison.run._untrained", lambda *_: pytest.fail("scored again"))
    assert commands.call(monkeypatch, capsys, *typed, "--workers", "1")[0] == 0
    assert json.loads((folder / "results.json").read_text())["arms"] == results["arms"]
    config = json.loads((folder / "config.json").read_text())
    moved = {part: data[part].replace("/a/", "/b/") for part in ("train", "test")}
    assert (config["model"], config["data"]) == (model.replace("/a/", "/b/"), moved)
    assert comparison.resume(folder, quiet=True).results["arms"] == results["arms"]


def test_the_command_for_a_moved_run_says_what_is_of_this_machine_and_nothing_behind_its_folder(tmp_path, monkeypatch):
    gone = Plan(
        model=str(tmp_path / "gone" / "model"), data={"train": str(tmp_path / "gone" / "t.jsonl")}, device="cpu"
    )
    monkeypatch.setattr("tunescope.trial.moved_files.default_device", lambda: torch.device("cuda"))
    folder, typed = tmp_path / "a run", f"--out {shlex.quote(str(tmp_path / 'a run'))}"
    for seeds, behind in (((0, 1), ""), ((3,), "  # in Python: seeds=[3]")):
        with pytest.raises(UserError, match="--device cpu --together 2 --out ") as told:
            moved_files.check_there(replace(gone, day="2026-01-02", seeds=seeds, together=2), folder)
        assert str(told.value).endswith(typed + behind)


def test_what_lies_elsewhere_and_is_something_else_is_refused_by_name(material, finished, tmp_path):
    before = held(finished)
    model, rows = tmp_path / "elsewhere" / "model", tmp_path / "elsewhere" / "others.jsonl"
    shutil.copytree(material[0], model)
    rows.write_text("".join(json.dumps(row) + "\n" for row in tinyrun.rows(64, 9)))
    digest = hashlib.sha256(rows.read_bytes()).hexdigest()[:12]
    asked = question(material, "zero-shot", "lora:rank=1")
    told = (
        rf"holds another comparison \(it differs in: data.train\): others.jsonl has the hash {digest}, and train.jsonl"
    )
    with pytest.raises(UserError, match=told):
        comparison.ask(replace(asked, data={**material[1], "train": str(rows)}), finished, quiet=True)
    parts = {part: path for part, path in material[1].items() if part != "dev"}
    with pytest.raises(UserError, match=r"it differs in: data\.dev\)"):  # a part more or less is another question
        comparison.ask(replace(asked, data=parts), finished, quiet=True)
    tinyrun.model(seed=5).save_pretrained(model)
    with pytest.raises(UserError, match="the weights of model had the hash"):
        comparison.ask(replace(asked, model=str(model)), finished, quiet=True)
    assert held(finished) == before
    tinyrun.model().save_pretrained(model)
    comparison.ask(replace(asked, model=str(model)), finished, quiet=True)
    assert json.loads((finished / "config.json").read_text())["model"] == str(model)


def test_a_run_goes_on_with_other_versions_and_says_so(material, finished, monkeypatch, capsys):
    kept = json.loads((finished / "config.json").read_text())["versions"]
    assert kept == {name: version(name) for name in ("tunescope", "torch", "transformers")}
    for quiet in (True, False):
        comparison.resume(finished, quiet=quiet)
        assert "goes on with" not in capsys.readouterr().err
    monkeypatch.setattr(machine, "versions", lambda: kept | {"torch": "9.8", "transformers": "7.6", "python": "3"})
    told = (
        f"note: {finished} was begun with torch {kept['torch']}, transformers {kept['transformers']}, and goes on with "
    )
    for _ in range(2):
        comparison.resume(finished)
        assert told + "torch 9.8, transformers 7.6\n" in capsys.readouterr().err
    assert json.loads((finished / "config.json").read_text())["versions"] == kept


def test_a_run_goes_on_in_the_precision_that_auto_came_to(material, tmp_path, monkeypatch, capsys):
    asked, seen, plain = question(material, "lora:rank=1"), [], loop.autocast

    def ask_of(name):
        seen.clear()
        found = comparison.ask(asked, tmp_path / name)
        return json.loads((tmp_path / name / "config.json").read_text())["chosen_precision"], set(seen), found.results

    monkeypatch.setattr(loop, "autocast", lambda device, precision: seen.append(precision) or plain(device, precision))
    chosen, computed, first = ask_of("first")
    assert (chosen, computed) == ("float32", {"float32"})
    monkeypatch.setattr(machine, "precision_on", lambda device, asked: "bfloat16" if asked == "auto" else asked)
    capsys.readouterr()
    for path in (tmp_path / "first" / "arms").iterdir():  # so that it is trained once more
        shutil.rmtree(path)
    chosen, computed, again = ask_of("first")
    assert (chosen, computed) == ("float32", {"float32"})
    assert f"note: --precision auto came to float32 where {tmp_path}/first was begun, and comes to bfloat16" in (
        capsys.readouterr().err
    )
    assert [[run["id"] for run in arm["runs"]] for arm in first["arms"]] == [
        [run["id"] for run in arm["runs"]] for arm in again["arms"]
    ]
    assert again["protocol"]["precision"] == "float32"
    chosen, computed, other = ask_of("other")
    assert (chosen, computed, other["protocol"]["precision"]) == ("bfloat16", {"bfloat16"}, "bfloat16")
    assert other["arms"][0]["runs"][0]["id"] == first["arms"][0]["runs"][0]["id"]  # which has "auto"


def test_a_gpu_that_has_no_bfloat16_does_not_go_on_in_it(material, finished, monkeypatch):
    bench = open_bench(question(material))
    bench.device = torch.device("cuda")
    config = json.loads((finished / "config.json").read_text())
    (finished / "config.json").write_text(json.dumps(config | {"chosen_precision": "bfloat16"}))
    monkeypatch.setattr(machine, "precision_on", lambda device, asked: "float32")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)  # computed by other units, slower
    assert begun_with.keep_precision(bench, finished).endswith("; the run goes on in bfloat16")
    assert bench.plan.training.precision == "bfloat16" and bench.plan.settings.precision == "auto"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(
        UserError, match=r"cannot compute in bfloat16.* begin anew with --precision float32 and another"
    ):
        begun_with.keep_precision(bench, finished)
