"""The day of a run whose rows are asked in turns: some chat templates write it, and a run goes on on another day."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from tunescope.system import run_folder
from tunescope.trial.bench import Bench
from tunescope.trial.chats import turns_of
from tunescope.trial.plan import Plan


def on_its_day(question: Plan, folder: Path | None = None) -> Plan:
    """The question on the day that the folder's run was begun, which is today where it is yet to be, or there is none.

    The day that a plan names stays. A run that was begun when none was kept is asked on the day that it is.
    """
    if question.day or not (question.task.get("chat") or "own" in question.task):  # an own class may ask in turns
        return question
    if folder is None or not (folder / "config.json").exists():
        return replace(question, day=date.today().isoformat())
    return replace(question, day=run_folder.read_config(folder).get("day") or "")


def on_day_told(bench: Bench) -> Plan:
    """The bench's plan, with a day only where the chat template writes it."""
    turns = turns_of(bench)
    return replace(bench.plan, day=turns.day if turns else "")
