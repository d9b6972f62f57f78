"""Loggers: what they are told, read back by the packages themselves; what fails costs no run."""

import dataclasses
import json
import sqlite3
import sys
import types
from typing import ClassVar

import pytest
import tinyrun

from tunescope.comparison import comparison, events, logger, procedure
from tunescope.comparison.events import Begun, Place, safe
from tunescope.errors import UserError
from tunescope.system import plugins
from tunescope.trial import plan, plan_check
from tunescope.trial.train.settings import Settings


def question(material):
    model, data = material
    settings = Settings(steps=6, batch_size=8, eval_every=3, patience=3)
    fields = {"task": {"kind": "classification"}, "seeds": (0, 1), "trials": 1, "beyond": 0, "settings": settings}
    return plan_check.check(plan.Plan(model=model, data=data, arms=("zero-shot", "lora:rank=2"), **fields))


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


class Recorder(logger.Logger):
    """Keeps what it is told; fails where it is asked to."""

    made: ClassVar = []
    fails: ClassVar = ""

    def __init__(self, begun):
        self.told = [begun]
        type(self).made.append(self)

    def _hear(self, what, event):
        if type(self).fails == what:
            raise RuntimeError(f"no {what}\ntoday")
        self.told.append(event)

    def step(self, event):
        self._hear("step", event)

    def ended(self, event):
        self._hear("ended", event)

    def concluded(self, event):
        self._hear("concluded", event)

    def close(self):
        self.told.append("closed")


@pytest.fixture
def recorder(monkeypatch):
    module = types.ModuleType("tunescope.comparison.loggers.recorder")
    kind = type("Recorder", (Recorder,), {"__module__": module.__name__, "made": [], "fails": ""})
    module.Recorder = kind
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = plugins.names
    monkeypatch.setattr(plugins, "names", lambda folder: [*names(folder), *["recorder"] * (folder == logger.LOGGERS)])
    return kind


@pytest.mark.parametrize("workers", [1, 2])
def test_a_logger_is_told_of_every_run_its_curve_and_the_verdict_whoever_runs_it(material, recorder, tmp_path, workers):
    found = comparison.ask(
        question(material), tmp_path / "run", workers=workers, quiet=True, report_to=["recorder", "recorder"]
    )
    (made,) = recorder.made
    first, *between, last, closed = made.told
    assert closed == "closed" and first.name == "run"
    assert first.question["model"] == "model" and str(tmp_path) not in str(dict(first.question))
    ended = [one for one in between if type(one).__name__ == "Ended"]
    runs = {arm["name"]: arm for arm in found.results["arms"]}
    for arm in runs.values():
        for run in arm["runs"]:
            (event,) = [
                one
                for one in ended
                if (one.place.arm, one.place.seed, one.place.tests) == (arm["name"], run["seed"], True)
            ]
            assert dict(event.test) == run["test"] and event.dev == run["dev"]
            assert event.curve == tuple((one["step"], one["loss"], one["dev"]) for one in run["curve"])
            assert (event.seconds, event.memory_mb, event.place.rate) == (
                run["seconds"], run["memory_mb"], arm["learning_rate"],
            )  # fmt: skip
    assert {one.place.arm for one in between if type(one).__name__ == "Step"} == {"lora:rank=2"}
    assert (last.answer, last.best) == (found.results["verdict"]["answer"], found.results["best"]["arm"])
    assert last.scores["lora:rank=2"] == (runs["lora:rank=2"]["score"], *runs["lora:rank=2"]["interval"])
    kept = found.results["best"]["path"]
    assert last.artifact == (tmp_path / "run" / kept if kept else None)


def test_events_cannot_be_changed(material, recorder, tmp_path):
    comparison.ask(question(material), tmp_path / "run", quiet=True, report_to=["recorder"])
    for event in recorder.made[0].told[:-1]:
        for one in dataclasses.fields(event):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(event, one.name, None)
            value = getattr(event, one.name)
            if isinstance(value, types.MappingProxyType):
                with pytest.raises(TypeError):
                    value["a"] = 1


@pytest.mark.parametrize("what", ["step", "ended", "concluded"])
def test_a_logger_that_fails_is_told_of_once_and_changes_nothing(material, recorder, tmp_path, capsys, what):
    recorder.fails = what
    with_it = comparison.ask(question(material), tmp_path / "with", quiet=True, report_to=["recorder"])
    assert capsys.readouterr().err.count("--report-to recorder failed and is left out from here on") == 1
    alone = comparison.ask(question(material), tmp_path / "alone", quiet=True)
    for one, other in zip(with_it.results["arms"], alone.results["arms"], strict=True):
        assert [run["stats"] for run in one["runs"]] == [run["stats"] for run in other["runs"]]


def test_a_finished_run_is_told_again_and_a_closed_logger_is_closed_after_a_fault(
    material, recorder, tmp_path, monkeypatch
):
    comparison.ask(question(material), tmp_path / "run", quiet=True)
    comparison.resume(tmp_path / "run", quiet=True, report_to=["recorder"])
    assert sum(type(one).__name__ == "Ended" for one in recorder.made[0].told) == 4  # a trial and three runs
    monkeypatch.setattr(procedure, "finish", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        comparison.resume(tmp_path / "run", quiet=True, report_to=["recorder"])
    assert recorder.made[1].told[-1] == "closed"


def test_a_logger_that_is_not_there_or_not_installed_is_told_before_anything_runs(material, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"^There is no logger 'tensorbord'\. Did you mean 'tensorboard'\?"):
        comparison.ask(question(material), tmp_path / "run", quiet=True, report_to=["tensorbord"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--report-to wandb needs what is not installed .*Type: pip install wandb$"):
        comparison.ask(question(material), tmp_path / "run", quiet=True, report_to=["wandb"])
    assert not list((tmp_path / "run").glob("arms/*"))


def test_a_logger_that_cannot_begin_closes_those_that_did(recorder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", types.ModuleType("mlflow"))
    begun = Begun(tmp_path, "run", {})
    with pytest.raises(UserError, match="mlflow"), logger.stream(["recorder", "mlflow"], begun, print):
        raise AssertionError
    assert recorder.made[0].told[-1] == "closed"


def test_names_for_logs_are_plain_and_tell_runs_apart():
    assert Place("lora:rank=2", 0.001, 3, True, (0.001,)).name == "lora:rank=2/lr 0.001 seed 3"
    assert Place("zero-shot", None, 0, True, ()).name == "zero-shot/seed 0"
    assert safe("text:text=\u202e<b>,x/lr 1e-05 seed 0") == "text_text___b__x/lr 1e-05 seed 0"


@pytest.fixture
def done(material, tmp_path):
    def ran(name):
        found = comparison.ask(question(material), tmp_path / "run", quiet=True, report_to=[name])
        (arm,) = [one for one in found.results["arms"] if one["name"] == "lora:rank=2"]
        run = next(one for one in arm["runs"] if one["seed"] == 1)
        return found, arm, run, f"lora_rank_2/lr {arm['learning_rate']:g} seed 1"

    return ran


def test_tensorboard_reads_back_curves_scores_and_the_verdict(done):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found, arm, run, name = done("tensorboard")
    root = found.folder / "tensorboard"
    one = EventAccumulator(str(root / name.replace("/", "_"))).Reload()
    assert [(point.step, point.value) for point in one.Scalars("loss")] == [
        (point["step"], pytest.approx(point["loss"])) for point in run["curve"]
    ]
    assert one.Scalars("test/accuracy")[-1].value == pytest.approx(run["test"]["accuracy"])
    told = EventAccumulator(str(root)).Reload()
    assert told.Scalars("score/lora_rank_2")[0].value == pytest.approx(arm["score"])
    text = told.Tensors("verdict/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.startswith(found.results["verdict"]["answer"])


def test_mlflow_reads_back_nested_runs(done):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from mlflow.tracking import MlflowClient

    found, arm, run, name = done("mlflow")
    client = MlflowClient(tracking_uri=f"sqlite:///{found.folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tunescope").experiment_id
    runs = client.search_runs([experiment])
    (parent,) = [one for one in runs if "mlflow.parentRunId" not in one.data.tags]
    assert parent.data.tags["verdict"] == found.results["verdict"]["answer"]
    assert parent.data.metrics["lora_rank_2/low"] == pytest.approx(arm["interval"][0])
    (own,) = [one for one in runs if one.info.run_name == name]
    assert own.data.tags["mlflow.parentRunId"] == parent.info.run_id and own.info.status == "FINISHED"
    points = sorted(client.get_metric_history(own.info.run_id, "loss"), key=lambda one: one.step)
    assert [(one.step, one.value) for one in points] == [
        (point["step"], pytest.approx(point["loss"])) for point in run["curve"]
    ]
    assert own.data.metrics["test accuracy"] == pytest.approx(run["test"]["accuracy"])


def leveldb_records(data, block=32768, head=7):
    """The records of a .wandb file, which is a LevelDB log: blocks of pieces, each with crc, length and kind."""
    at, whole = head, b""
    while at < len(data):
        if block - at % block < head:  # a block's end is too short for another piece
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + head : at + head + length]
        at += head + length
        if kind in (1, 4):  # whole, or the last piece
            yield whole
            whole = b""


def test_wandb_s_offline_file_has_curves_and_summary(done, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    found, arm, run, name = done("wandb")
    (path,) = found.folder.glob("wandb/offline-run-*/*.wandb")
    history, summary = [], {}
    for data in leveldb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        told = [(item.key or "/".join(item.nested_key), json.loads(item.value_json)) for item in record.history.item]
        history += [dict(told)] if told else []
        summary |= {
            item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.summary.update
        }
    losses = {one[f"{name}/step"]: one[f"{name}/loss"] for one in history if f"{name}/loss" in one}
    assert losses == {point["step"]: pytest.approx(point["loss"]) for point in run["curve"]}
    assert summary["verdict"] == found.results["verdict"]["answer"]
    assert summary["lora_rank_2/high"] == pytest.approx(arm["interval"][1])
    assert summary[f"{name}/test accuracy"] == pytest.approx(run["test"]["accuracy"])


def test_trackio_keeps_its_database_here(done, monkeypatch, tmp_path):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="trackio is not installed")
    import trackio.sqlite_storage as storage

    monkeypatch.setattr(storage, "TRACKIO_DIR", tmp_path / "trackio")
    found, arm, run, name = done("trackio")
    (database,) = (tmp_path / "trackio").rglob("*.db")
    with sqlite3.connect(database) as opened:
        assert opened.execute("select count(*) from metrics").fetchone()[0] > 4
    logs = storage.SQLiteStorage.get_logs("tunescope", found.folder.name)
    losses = {one["step"]: one[f"{name}/loss"] for one in logs if f"{name}/loss" in one}
    assert losses == {point["step"]: pytest.approx(point["loss"]) for point in run["curve"]}
    last = next(one for one in logs if "verdict" in one)
    assert last["lora_rank_2/score"] == pytest.approx(arm["score"])


def test_the_verdict_s_event_has_the_best_arm_s_artifact_where_there_is_one(tmp_path):
    results = {"arms": [], "verdict": {"answer": "undecided", "sentences": []}}
    for path, wanted in (("best", tmp_path / "best"), (None, None)):
        event = events.concluded(tmp_path, results | {"best": {"arm": "lora", "path": path}})
        assert (event.best, event.artifact) == ("lora", wanted)
