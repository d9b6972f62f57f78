"""A probe's finding as a table, a page, pictures and JSON. Never imports torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from tunescope.errors import UserError
from tunescope.report import text
from tunescope.report.drawing import number
from tunescope.report.finding import AttentionMap, Cell, Finding, Pair
from tunescope.report.page import check_own, file, policy, template
from tunescope.report.pictures import draw
from tunescope.system import files

PICTURES = "picture-[0-9]*.svg"


def page(
    findings: Sequence[Finding],
    facts: Mapping[str, Any],
    texts: Sequence[str] = (),
    command: str = "",
    heading: str = "",
) -> str:
    """One self-contained page; equal findings give equal bytes. `facts`: model, attached, and what else is known.

    heading: of the page; the first finding's, if not given.
    """
    style = file("page.css") + file("pictures.css") + file("findings.css")
    made: str = template("findings.html.j2").render(
        policy=policy(style),
        style=Markup(style),
        heading=text.clean(heading or findings[0].heading),
        findings=[_shown(one) for one in findings],
        level=2 if len(findings) == 1 else 3,
        facts=text.clean(dict(facts)),
        texts=text.said(list(texts)),
        command=text.command(command),
    )
    return made


def _shown(finding: Finding) -> dict[str, Any]:
    return {
        "heading": text.clean(finding.heading),
        "says": text.clean(finding.says),
        "not_said": text.clean(finding.not_said),
        "columns": text.clean(finding.columns),
        "rows": [
            [{"shown": shown(cell), "is_number": not isinstance(cell, str)} for cell in row] for row in finding.rows
        ],
        "pictures": [{"title": text.clean(one.title), "drawn": draw(one)} for one in finding.pictures],
        "legend": any(isinstance(one, AttentionMap | Pair) for one in finding.pictures),
    }


def table(finding: Finding) -> Table:
    """The finding's rows for the terminal."""
    out = Table(box=None)
    for index, name in enumerate(finding.columns):
        is_number = bool(finding.rows) and not isinstance(finding.rows[0][index], str)
        out.add_column(Text(str(text.clean(name))), justify="right" if is_number else "left", overflow="fold")
    for row in finding.rows:
        out.add_row(*(Text(shown(cell)) for cell in row))
    return out


def shown(cell: Cell) -> str:
    if isinstance(cell, str):
        return str(text.clean(cell))
    return str(cell) if isinstance(cell, int) else number(cell)


def check_folder(folder: Path, name: str) -> None:
    """UserError where the folder has a NAME.html that is none of ours, or what such a page brings along and no page."""
    page = folder / f"{name}.html"
    check_own(page, '<p class="brand">tunescope</p>', "a page of tunescope", "name another: --out FOLDER")
    theirs = [*folder.glob(PICTURES), *folder.glob(f"{name}.json")]
    if theirs and not page.exists():
        raise UserError(f"{min(theirs)} is there without a {page.name}; move it away, or name another: --out FOLDER.")


def write(
    finding: Finding, folder: Path, facts: Mapping[str, Any], texts: Sequence[str] = (), command: str = ""
) -> Path:
    """probe.html, probe.json and picture-N.svg in the folder, in the place of earlier ones; the page's path."""
    return write_all({"probe": finding}, folder, "probe", facts, texts, command)


def write_all(
    findings: Mapping[str, Finding],
    folder: Path,
    name: str,
    facts: Mapping[str, Any],
    texts: Sequence[str] = (),
    command: str = "",
    heading: str = "",
) -> Path:
    """NAME.html, FINDING.json for each and picture-N.svg in the folder, in the place of earlier ones; the page."""
    files.make_folder(folder)
    for old in (*folder.glob(f"{PICTURES}*"), *folder.glob("*.json.tmp-*"), *folder.glob("*.html.tmp-*")):
        old.unlink()
    path = folder / f"{name}.html"  # first, for what stands without it is taken for another's
    files.put(path, page(list(findings.values()), facts, texts, command, heading).encode())
    pictures = [picture for finding in findings.values() for picture in finding.pictures]
    for index, picture in enumerate(pictures, 1):
        files.put(folder / f"picture-{index}.svg", standalone(draw(picture)).encode())
    for own, finding in findings.items():
        numbers = _as_json(finding, facts, texts, command)
        written = json.dumps(files.finite(numbers), indent=1, ensure_ascii=False, allow_nan=False)
        files.put(folder / f"{own}.json", written.encode("utf-8", "replace"))
    return path


def _as_json(finding: Finding, facts: Mapping[str, Any], texts: Sequence[str], command: str) -> dict[str, Any]:
    return {
        "version": 1,
        "heading": finding.heading,
        "facts": dict(facts),
        "command": command,
        "texts": list(texts),
        "columns": list(finding.columns),
        "rows": [list(row) for row in finding.rows],
        "numbers": finding.numbers,
        "not_said": finding.not_said,
    }


def standalone(drawing: Markup) -> str:
    """The same drawing as a file of its own: with a name space, a background, and the colours written out."""
    style = re.sub(r"var\(--[\w-]+, ([^)]+)\)", r"\1", file("pictures.css"))
    inside = f'<style>{style}</style><rect width="100%" height="100%" fill="#fdfcfa"/>'
    drawn = str(drawing).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    start = drawn.index(">") + 1
    return f"{drawn[:start]}{inside}{drawn[start:]}\n"


__all__ = ["page", "standalone", "table", "write", "write_all"]
