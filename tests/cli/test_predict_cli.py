"""`predict` as a person meets it: what it writes, what it says, and what it does not touch."""

import csv
import json
import signal
from pathlib import Path

import pytest

from tunescope.comparison import predict
from tunescope.data.read import read
from tunescope.errors import UserError

QUICK = ["--arms", "zero-shot", "lora:rank=2", "--steps", "4", "--seeds", "1", "--trials", "1", "--workers", "1"]


@pytest.fixture
def run(tunescope, material, tmp_path):
    model, data = material
    folder = tmp_path / "a run"
    asked = ["compare", model, data["train"], "--dev", data["dev"], "--test", data["test"], *QUICK, "--out", folder]
    code, out, _ = tunescope(*asked)
    assert code == 0 and out.splitlines()[-1] == f"new rows: tunescope predict '{folder}' NEW.jsonl --out ANSWERS.jsonl"
    return folder


def test_rows_are_answered_scored_and_written(tunescope, material, run, tmp_path):
    _, data = material
    code, out, _ = tunescope("predict", run, data["test"], "--out", tmp_path / "a.jsonl", "--arm", "lora:rank=2")
    told = json.loads((run / "results.json").read_text())
    arm = next(one for one in told["arms"] if one["name"] == "lora:rank=2")
    answers = [told["task"]["labels"][int(one[2])] for one in arm["runs"][0]["stats"]]
    assert code == 0 and [row["prediction"] for row in read(tmp_path / "a.jsonl")] == answers
    first, labels, score = out.splitlines()
    assert first == f"32 rows answered by lora:rank=2, seed 0: {tmp_path}/a.jsonl"
    counts = {label: answers.count(label) for label in answers}
    assert dict(one.split(" ") for one in labels.split(", ")) == {name: str(count) for name, count in counts.items()}
    assert score.startswith(f"accuracy {arm['runs'][0]['test']['accuracy']:.3f} (0.")


def test_rows_without_labels_become_a_table(tunescope, material, run, tmp_path):
    _, data = material
    rows = [{"id": at, "text": row["text"], "label": None} for at, row in enumerate(read(data["test"]))]
    rows[0]["label"] = "neg"
    new = tmp_path / "new.jsonl"
    new.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = tunescope("predict", run, new, "--out", tmp_path / "b.csv", "--field", "is")
    assert code == 0 and out.splitlines()[-1] == "not scored: 31 of the rows have no answer of their own"
    with open(tmp_path / "b.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    assert {row["is"] for row in found} <= {"neg", "pos"} and all(float(row["is_probability"]) >= 0.5 for row in found)
    assert [row["label"] for row in found] == ["neg", *[""] * 31]


def test_a_row_that_cannot_be_asked_leaves_no_file(tunescope, run, tmp_path):
    new = tmp_path / "new.jsonl"
    new.write_text('{"text": "a film"}\n{"text": null}\n')
    code, _, err = tunescope("predict", run, new, "--out", tmp_path / "a.jsonl")
    assert code == 2 and "new.jsonl line 2: 'text' is null" in err
    new.write_text('{"text": "a film"}\n')
    code, out, _ = tunescope("predict", run, new, "--out", tmp_path / "a.jsonl")
    assert code == 0 and out.startswith("1 row answered by ")


def test_mistakes_are_told_before_the_model_is_read(tunescope, material, run, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "open_bench", lambda *_, **__: pytest.fail("read"))
    there = tmp_path / "there.csv"
    there.write_text("mine")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "a film"}\n{"text": \n')
    data = material[1]["test"]
    for words, told in (
        ((run, data, "--out", there), "there.csv is there already"),
        ((run, data, "--out", tmp_path / "a.xlsx"), "the name tells the format. Allowed: .jsonl, .ndjson, .csv"),
        ((run, data, "--out", tmp_path / "a.csv", "--arm", "soft"), "'soft' is no arm of"),
        ((run, broken, "--out", tmp_path / "a.csv"), "broken.jsonl line 2 is not JSON"),
        ((tmp_path, data, "--out", tmp_path / "a.csv"), "is not the folder of a run."),
    ):
        code, _, err = tunescope("predict", *words)
        assert code == 2 and err.count("\n") == 1 and told in err
    assert there.read_text() == "mine"


def test_what_was_answered_stays_when_it_is_stopped(tunescope, material, run, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "AT_ONCE", 10)
    original, calls = predict.questions.predictions, []

    def some(*given, **only):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*given, **only)

    monkeypatch.setattr(predict.questions, "predictions", some)
    kept = signal.getsignal(signal.SIGINT)
    try:
        code, _, err = tunescope("predict", run, material[1]["test"], "--out", tmp_path / "a.jsonl")
    finally:
        signal.signal(signal.SIGINT, kept)
    assert code == 130 and err.splitlines()[-1] == (
        f"stopped; the first 20 of 32 rows are in {tmp_path}/a.jsonl, and the rest begins with row 21"
    )
    assert [row["text"] for row in read(tmp_path / "a.jsonl")] == [
        row["text"] for row in read(material[1]["test"])[:20]
    ]
    calls[:] = [None, None]  # stopped at the first block of rows: nothing is left, and the same can be typed again
    try:
        code, _, err = tunescope("predict", run, material[1]["test"], "--out", tmp_path / "b.jsonl")
    finally:
        signal.signal(signal.SIGINT, kept)
    assert code == 130 and err.splitlines()[-1] == "stopped" and not (tmp_path / "b.jsonl").exists()


@pytest.mark.parametrize("at", [1, 3])
def test_what_was_answered_before_a_fault_is_told_and_nothing_is_left_of_nothing(
    tunescope, material, run, tmp_path, monkeypatch, at
):
    monkeypatch.setattr(predict, "AT_ONCE", 10)
    original, calls = predict.questions.predictions, []

    def some(*given, **only):
        calls.append(given)
        if len(calls) == at:
            raise UserError("the memory has ended")
        return original(*given, **only)

    monkeypatch.setattr(predict.questions, "predictions", some)
    code, _, err = tunescope("predict", run, material[1]["test"], "--out", tmp_path / "a.jsonl")
    told = f"the first 20 of 32 rows are in {tmp_path}/a.jsonl, and the rest begins with row 21: for that give another"
    assert code == 2 and "the memory has ended" in err and (told in err) == (at == 3)
    assert (tmp_path / "a.jsonl").exists() == (at == 3)


def test_an_unfinished_run_is_told_to_be_finished(tunescope, material, run, tmp_path):
    Path(run / "results.json").unlink()
    code, _, err = tunescope("predict", run, material[1]["test"], "--out", tmp_path / "a.jsonl")
    assert code == 2 and err.endswith(f"a run is not finished. Type: tunescope resume '{run}'\n")
