"""`tunescope data`, and a corpus where a data path is given."""

import json

import made
import pytest
import tinyrun
from commands import call

from tunescope.data import corpus_name
from tunescope.data.corpus import corpus
from tunescope.data.read import read, sha256


@pytest.fixture
def tunescope(monkeypatch, capsys):
    return lambda *words: call(monkeypatch, capsys, *words)


@pytest.fixture
def folder(tmp_path):
    """SuperGLUE's RTE by form, with words that the tiny tokenizer knows."""
    place = tmp_path / "RTE"
    named = {"pos": "entailment", "neg": "not_entailment"}
    for part, count, seed in (("train", 24, 0), ("dev32", 12, 1), ("val", 12, 2)):
        rows = [
            {"premise": row["text"], "hypothesis": "a film", "label": named[row["label"]]}
            for row in tinyrun.rows(count, seed)
        ]
        made.jsonl(place / f"{part}.jsonl", *rows)
    return place


def test_the_corpora_are_listed_with_their_sources(tunescope):
    code, out, _ = tunescope("data")
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()[:-2:2]] == corpus_name.names()
    assert "github.com/tuetschek/e2e-dataset" in out and "NAME:FOLDER#PART" in out


def test_what_is_in_a_corpus_is_told_and_written(tunescope, folder, tmp_path):
    code, out, _ = tunescope("data", f"rte:{folder}", "--out", tmp_path / "out")
    assert code == 0
    assert "train: 24 rows, " in out and "fields input, hypothesis, premise, target, text, label" in out
    for part in ("train", "dev", "test"):
        assert f"written: {tmp_path}/out/{part}.jsonl" in out
        assert read(tmp_path / f"out/{part}.jsonl") == corpus(f"rte:{folder}")[part]
    code, _, err = tunescope("data", f"rte:{folder}#dev", "--out", tmp_path / "out/dev.jsonl")
    assert (code, err.count("\n")) == (2, 1)
    assert f"--out: {tmp_path}/out/dev.jsonl is already there, and is kept" in err
    code, out, _ = tunescope("data", f"rte:{folder}#dev", "--out", tmp_path / "one.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "out/dev.jsonl").read_bytes()


def test_what_cannot_be_written_is_one_line(tunescope, folder, tmp_path):
    code, _, err = tunescope("data", f"rte:{folder}", "--out", tmp_path / "one.jsonl")
    assert code == 2 and "one.jsonl is one file, and there are train, dev, test. Name a part, #PART, or a folder" in err
    code, _, err = tunescope("data", "--out", tmp_path / "x")
    assert code == 2 and "--out is for the rows of a corpus: tunescope data NAME:FOLDER --out DIR" in err
    made.put(tmp_path / "file", "text")
    code, _, err = tunescope("data", f"rte:{folder}", "--out", tmp_path / "file/in")
    assert code == 2 and "--out: cannot write" in err and "Give another place" in err


def test_what_was_left_out_is_told(tunescope, tmp_path):
    made.jsonl(tmp_path / "train.jsonl", {"triples": [["a", "b", "c"]], "references": ["d", ""]})
    _, out, _ = tunescope("data", f"dart:{tmp_path}")
    assert f"note: dart:{tmp_path.name}#train: 1 empty texts left out." in out


def test_compare_takes_train_dev_and_test_from_the_folder(tunescope, folder, tmp_path):
    model, _ = tinyrun.write(tmp_path / "made")
    quick = ["--words", "entailment=pos,not_entailment=neg", "--arms", "zero-shot", "lora:rank=2", "--steps", "4"]
    quick += ["--seeds", "1", "--trials", "1", "--workers", "1"]
    code, _, err = tunescope("compare", model, f"rte:{folder}", *quick, "--out", tmp_path / "run")
    assert code == 0, err
    told = json.loads((tmp_path / "run/results.json").read_text())
    parts = {part: (one["path"], one["rows"], one["sha256"]) for part, one in told["data"].items() if part != "notes"}
    names = {"train": "train", "dev": "dev32", "test": "val"}
    hashes = {part: sha256(folder / f"{name}.jsonl") for part, name in names.items()}
    assert parts == {
        "train": ("rte:RTE#train", 24, hashes["train"]),
        "dev": ("rte:RTE#dev", 12, hashes["dev"]),
        "test": ("rte:RTE#test", 12, hashes["test"]),
    }
    assert str(tmp_path) not in told["command"]
    assert "rte:RTE#train --dev rte:RTE#dev --test rte:RTE#test" in told["command"].replace("'", "")
    code, _, err = tunescope("resume", tmp_path / "run", "--workers", "1")
    assert code == 0, err


def test_what_a_reader_left_out_is_among_the_notes_of_a_comparison(tunescope, tmp_path):
    model, _ = tinyrun.write(tmp_path / "made")
    for part in ("train", "validation", "test"):
        rows = [
            {"triples": [["film", "was", row["text"]]], "references": [row["label"], ""]} for row in tinyrun.rows(12, 1)
        ]
        made.jsonl(tmp_path / "dart" / f"{part}.jsonl", *rows)
    words = ["--model", model, "--task", "generation", "--arms", "zero-shot", "--seeds", "1", "--test"]
    code, out, err = tunescope("check", f"dart:{tmp_path / 'dart'}", *words, f"dart:{tmp_path / 'dart'}#test")
    assert code == 0, err
    assert "note: dart:dart#train: 12 empty texts left out." in out
    assert "note: dart:dart#test: 12 empty texts left out." in out
