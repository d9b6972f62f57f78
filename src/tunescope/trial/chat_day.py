"""The day of a run whose rows are asked in turns: some chat templates write it, and a run goes on on another day."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from tunescope.system import run_folder
from tunescope.trial.plan import Plan


def on_its_day(question: Plan, folder: Path) -> Plan:
    """The question on the day that the folder's run was begun, which is today where it is yet to be.

    The day that a plan names stays. A run that was begun when none was kept is asked on the day that it is.
    """
    if question.day or not question.task.get("chat"):
        return question
    if not (folder / "config.json").exists():
        return replace(question, day=date.today().isoformat())
    return replace(question, day=run_folder.read_config(folder).get("day") or "")
