"""What was read is what is used: workers and `resume` find the files of the start, or the run stops and says which."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tinyrun
import torch

from tunescope.comparison import comparison, workers
from tunescope.data import read
from tunescope.errors import UserError
from tunescope.system import machine
from tunescope.system.executors.local import Local
from tunescope.trial import elsewhere
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
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


CHANGES = {
    "data": (other_rows, r"train.jsonl \(train\) had the hash"),
    "weights": (other_weights, "the weights of model had the hash"),
    "tokenizer": (edited("tokenizer.json", '"plot"', '"plott"'), "the tokenizer of model had the hash"),
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
