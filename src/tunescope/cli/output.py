"""What several verbs print: a run, findings, a line of a foreign file, and the command as it was typed."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system import shell
from tunescope.system.say import say

FAULT = ".error.txt"  # ends the name of the file that a fault of ours is written to


def print_findings(findings: Mapping[str, Any], page: Path) -> None:
    from tunescope.report import terminal

    for finding in findings.values():
        say(f"\n{terminal.finding(finding)}")
    say(f"\npage: {page}")


def print_run(folder: Path, results: Mapping[str, Any]) -> None:
    from tunescope.comparison.conclusion import no_artifact
    from tunescope.report import terminal

    say(f"{terminal.everything(results)}\n\npage: {folder / 'report.html'}")
    if (folder / "best").exists():
        say(f"best artifact: {folder / 'best'}")
    elif told := no_artifact(results):
        say(told)
    if results.get("best"):
        say(f"new rows: tunescope predict {shell.path(folder)} NEW.jsonl --out ANSWERS.jsonl")


def check_finished(folder: Path, results: Mapping[str, Any]) -> None:
    """Exit with 70 where no arm is done and one failed by a fault that was written to a file of the run.

    Raises UserError where none is done else.
    """
    if any(one["status"] == "done" for one in results["arms"]):
        return
    faults = (one for one in results["arms"] if one["status"] == "failed" and FAULT in str(one["reason"]))
    failed = next(faults, None)
    if failed is None:
        first = results["arms"][0]
        raise UserError(f"no arm finished; {first['name']}, {first['status']}: {first['reason']}")
    say(
        f"error: no arm finished, by a fault of tunescope, and not of what you gave; {failed['name']}, "
        f"{failed['reason']}. Please look through that file in {folder} and send it in. To try again, type: tunescope "
        f"resume {shell.path(folder)}",
        sys.stderr,
    )
    sys.exit(70)


def command_line() -> str:
    """What was typed, to be kept with what it made."""
    return shlex.join(["tunescope", *sys.argv[1:]])
