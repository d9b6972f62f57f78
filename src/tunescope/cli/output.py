"""What several verbs print: a run, findings, a line of a foreign file, and the command as it was typed."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.system.say import say


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


def command_line() -> str:
    """What was typed, to be kept with what it made."""
    return shlex.join(["tunescope", *sys.argv[1:]])
