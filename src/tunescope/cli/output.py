"""What several verbs print: a run, findings, a line of a foreign file, and the command as it was typed."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def say(line: str) -> None:
    """A line with words of foreign files in it, which shall not steer the terminal."""
    from tunescope.report.text import visible

    print(visible(line), flush=True)


def print_findings(findings: Mapping[str, Any], page: Path) -> None:
    from tunescope.report import terminal

    for finding in findings.values():
        print(f"\n{terminal.finding(finding)}")
    print(f"\npage: {page}")


def print_run(folder: Path, results: Mapping[str, Any]) -> None:
    from tunescope.report import terminal

    print(f"{terminal.everything(results)}\n\npage: {folder / 'report.html'}")
    if (folder / "best").exists():
        print(f"best artifact: {folder / 'best'}")


def command_line() -> str:
    """What was typed, to be kept with what it made."""
    return shlex.join(["tunescope", *sys.argv[1:]])
