"""What the command line takes is told: each command and option stands in the README or in docs/, with its default."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tunescope.cli import app
from tunescope.cli.options import PlanOptions
from tunescope.trial.train.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = "\n".join(path.read_text("utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))
TRAINING = (ROOT / "docs" / "training.md").read_text("utf-8")
COMMANDS = [name for name in app.app if not name.startswith("-")]


def options(command: str) -> list[list[str]]:
    """The long names of each option, but for the negatives: some have two."""
    found = [
        [name for name in one.names if name.startswith("--")] for one in app.app[command].assemble_argument_collection()
    ]
    positive = [[name for name in names if not name.startswith(("--no-", "--empty-"))] for names in found]
    return [names for names in positive if names]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_each_of_its_options_is_told(command: str) -> None:
    assert re.search(rf"tunescope {command}\b", PAGES)
    for names in options(command):
        assert any(re.search(rf"{name}(?![\w-])", PAGES) for name in names), names


def test_the_options_of_training_stand_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `(--[\w-]+)` \| ([^|]*?) ?\|", TRAINING, re.MULTILINE))
    named = {f"--{one.name.replace('_', '-')}" for one in fields(PlanOptions)}
    assert named - set(rows) == {"--arms", "--dev", "--test", "--k-shot"}  # the README has these
    for one in fields(Settings):
        shown = f"{one.default:g}" if isinstance(one.default, float) else str(one.default)
        assert one.name == "eval_every" or rows[f"--{one.name.replace('_', '-')}"].strip("`") == shown
