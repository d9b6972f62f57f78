"""A command that is printed, typed again in a shell, asks the same."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bash
import pytest

from tunescope.cli import app
from tunescope.errors import UserError
from tunescope.system.label_pairs import pairs, typed
from tunescope.trial.command import command
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import planned


def asked_by(line: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """What the command asks, typed in bash."""
    seen: list[Plan] = []
    done = SimpleNamespace(folder=None, results={"arms": [{"status": "done"}]})
    monkeypatch.setattr("tunescope.comparison.comparison.ask", lambda plan, folder, **named: seen.append(plan) or done)
    monkeypatch.setattr("tunescope.cli.side_by_side.print_run", lambda folder, results: None)
    app.app(bash.words(line)[1:], exit_on_error=False, print_error=False, result_action="return_value")
    return replace(seen.pop(), device="cpu")


def given(data: str = "d.jsonl", **task: Any) -> Plan:
    return planned("m", data, {"kind": "classification", **task}, {"device": "cpu", "seeds": 2, "beyond": 1})


@pytest.mark.parametrize("field", ["length_penalty", "label_smoothing", "min_new_tokens"])
def test_a_zero_that_was_asked_for_is_typed(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = given(kind="generation", beams=3, **{field: 0})
    for here in (False, True):
        assert asked_by(command(asked, here), monkeypatch).task == asked.task


@pytest.mark.parametrize(
    "words",
    [
        {"-1": "bad", "0": "okay", "+1": "good"},
        {"0": "okay", "-1": "-", "--neg": "bad"},
        {"Food, drink": "food", "Art": "life=art", "a=b": "x,y", "C:\\": "\\,", "it's $HOME": 'a "b"'},
    ],
)
def test_words_for_labels_are_typed_whatever_signs_they_have(
    words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = given(words=words)
    for here in (False, True):
        assert asked_by(command(asked, here), monkeypatch).task["words"] == words
    assert asked_by(f"tunescope compare m d.jsonl {typed(words)}", monkeypatch).task["words"] == words


def test_advice_on_labels_names_them_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    for labels in (["-1", "0", "1"], ["Food, drink", "a=b", "it's"], ["not good", "good"]):
        asked = asked_by(f"tunescope compare m d.jsonl {typed(labels)}", monkeypatch)
        assert asked.task["words"] == dict.fromkeys(labels, "WORD")
    assert typed(["-1", "0"], more=True) == "--words=-1=WORD,0=WORD,..."
    assert typed(["a", "b"]) == "--words a=WORD,b=WORD"


def test_arms_whose_name_begins_with_a_dash_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace(given(), arms=("-a=lora", "prefix"))
    assert asked_by(command(asked), monkeypatch).arms == asked.arms


def test_a_label_has_one_word_and_commas_are_escaped() -> None:
    with pytest.raises(UserError, match=r"^--words has the label 'a' twice, 'good' and 'bad'; give it once\.$"):
        pairs("--words", ["a=good,b=x", "a =bad"])
    for wrong in ("Food, drink=food", "a", "=b", "a="):
        with pytest.raises(UserError, match=r"; give LABEL=WORD for each label, .* and a backslash before a comma of"):
            pairs("--words", [wrong])
    assert pairs("--words", [r"Food\, drink=food,a\=b=c,d=e=f"]) == {"Food, drink": "food", "a=b": "c", "d": "e=f"}
    assert pairs("--words", [r"a=\d,b=\\,c=x"]) == {"a": r"\d", "b": "\\", "c": "x"}


@pytest.mark.parametrize("name", ["-dash.jsonl", "b\udce4d.jsonl", "sp ace's.jsonl", "$HOME.jsonl"])
def test_a_file_of_any_name_is_typed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = replace(
        given(data=str(tmp_path / name)), data={"train": str(tmp_path / name), "test": str(tmp_path / name)}
    )
    Path(name).write_text("")
    assert asked_by(command(asked, here=True), monkeypatch).data == asked.data
    if name.startswith("-"):
        assert asked_by(command(asked), monkeypatch).data == asked.data
