"""Numbers that no verb can use, and options that would change nothing, are refused before anything is done."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import call

from tunescope.cli import runs
from tunescope.system import ranks, run_folder

WORKERS = "--workers -2 is too small; give 1 or more, or on the command line 0, the default, for as many"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to type in, with rows and a run that was begun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": "x"}\n')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"version": run_folder.VERSION, "model": "m"}))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("compare m rows.jsonl --workers -2", WORKERS),
        ("resume run --workers -2", WORKERS),
        ("anchors m rows.jsonl --workers -2", WORKERS),
        ("search m rows.jsonl --method gcg --workers -2", WORKERS),
        ("reproduce interval-coverage --workers -2", WORKERS),
        ("resume run --processes -2", "--processes -2 is too small; give a whole number of 0 or more."),
        ("compare m rows.jsonl --processes -2", "--processes -2 is too small; give a whole number of 0 or more."),
        ("watch run --every inf", "--every inf is no pause; give seconds above 0, and at most 86400"),
        ("watch run --every nan", "--every nan is no pause"),
        ("watch run --every 1e20", "--every 1e+20 is no pause"),
        ("watch run --every 0", "--every 0 is no pause"),
        ("reproduce --check", "--check is asked of a recipe, and none is named. Type: tunescope reproduce"),
        ("reproduce --so-far", "--so-far is asked of a recipe, and none is named."),
        ("reproduce --out x", "--out is asked of a recipe, and none is named."),
        ("reproduce --workers 2", "--workers is asked of a recipe, and none is named."),
        ("reproduce --executor ray", "--executor is asked of a recipe, and none is named."),
        ("reproduce --earlier x", "--earlier is asked of a recipe, and none is named."),
        ("reproduce --gpu T4", "--gpu is asked of a recipe, and none is named."),
    ],
)
def test_what_cannot_be_used_is_one_line_and_leaves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: str, told: str
) -> None:
    monkeypatch.setattr(ranks, "begun", lambda *given: pytest.fail("processes are begun"))
    monkeypatch.setattr(runs, "_where", lambda run: pytest.fail("the run is looked at"))
    before = sorted(here.rglob("*"))
    code, out, err = call(monkeypatch, capsys, *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(f"error: {told}")
    assert sorted(here.rglob("*")) == before
