"""A command that a message says to type has its paths in quotes, where they need them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.imports import PACKAGE

VERBS = "resume|predict|report|status|index|import|export|compare|check|lm-eval"
RUN = rf"\b(?:rm|mv|cp)|\btunescope (?:{VERBS})|\btype that command .*--out"
COMMAND = re.compile(rf"(?:{RUN})(?: (?:[A-Z]+|--out|\{{\}}))* $")
QUOTED = re.compile(r"(?:shell\.(?:path|word|line|join)|shlex\.quote|command)\(")


def unquoted(package: Path) -> list[str]:
    """FILE:LINE of each path that stands in an f-string behind a command, and is not quoted for a shell."""
    return [
        f"{path.relative_to(package)}:{line}: {{{hole}}} stands in a command: write shell.path({hole})"
        for path in sorted(package.rglob("*.py"))
        for line, hole, before in _holes(ast.parse(path.read_text("utf-8")))
        if COMMAND.search(before) and not QUOTED.match(hole)
    ]


def _holes(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, what is filled in, and the text in front of it, of each hole of an f-string."""
    for node in ast.walk(tree):
        before = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else []:
            if isinstance(part, ast.FormattedValue):
                yield part.lineno, ast.unparse(part.value), before
            before += "{}" if isinstance(part, ast.FormattedValue) else str(ast.literal_eval(part))


def test_paths_in_commands_are_quoted() -> None:
    assert not unquoted(PACKAGE)


def test_what_is_not_quoted_is_found(tmp_path: Path) -> None:
    lines = [
        'f"{run} is gone; type: tunescope resume {run}"',
        'f"type: rm {folder}/LOCK*"',
        'f"mv {shell.path(old)} {new}"',
        'f"tunescope compare MODEL DATA --out " f"{folder}, and all else"',
        'f"{run} is of tunescope {version}"',
        'f"tunescope resume {shell.path(run)} and tunescope resume RUN --max-seeds {seeds}"',
    ]
    (tmp_path / "row.py").write_text("\n".join(lines))
    found = [fault.partition(" stands")[0] for fault in unquoted(tmp_path)]
    assert found == ["row.py:1: {run}", "row.py:2: {folder}", "row.py:3: {new}", "row.py:4: {folder}"]
