"""A command that is printed, typed again in a shell, asks the same."""

import os
import subprocess
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tunescope.cli import app
from tunescope.trial.command import command
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import planned


def in_bash(line: str) -> list[str]:
    """The words that bash makes of a line."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def asked_by(line: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """What the command asks, typed in bash."""
    seen: list[Plan] = []
    done = SimpleNamespace(folder=None, results={"arms": [{"status": "done"}]})
    monkeypatch.setattr("tunescope.comparison.comparison.ask", lambda plan, folder, **named: seen.append(plan) or done)
    monkeypatch.setattr("tunescope.cli.side_by_side.print_run", lambda folder, results: None)
    app.app(in_bash(line)[1:], exit_on_error=False, print_error=False, result_action="return_value")
    return replace(seen.pop(), device="cpu")


def given(data: str = "d.jsonl", **task: Any) -> Plan:
    return planned("m", data, {"kind": "classification", **task}, {"device": "cpu", "seeds": 2, "beyond": 1})


@pytest.mark.parametrize("field", ["length_penalty", "label_smoothing", "min_new_tokens"])
def test_a_zero_that_was_asked_for_is_typed(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = given(kind="generation", beams=3, **{field: 0})
    for here in (False, True):
        assert asked_by(command(asked, here), monkeypatch).task == asked.task
