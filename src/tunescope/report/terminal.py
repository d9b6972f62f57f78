"""A finished comparison as text for a terminal; reads results.json alone, so torch is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tunescope import report
from tunescope.report import findings_page
from tunescope.report.verdict import words
from tunescope.report.verdict.edges import at_an_edge

WIDEST = 10_000  # columns

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tunescope.report.finding import Finding


def table(results: Mapping[str, Any]) -> str:
    """The final table, as wide as its columns and at least 120 wide, so that lines in a file or a pipe stay whole."""
    return printed(report.table(dict(results)), whole=True)


def finding(found: Finding) -> str:
    """What a probe found: the claim, its numbers, and what they do not say."""
    parts = [found.heading.upper(), found.says, printed(findings_page.table(found)), f"Not said: {found.not_said}"]
    return "\n\n".join(parts)


def printed(table: RenderableType, *, whole: bool = False) -> str:
    """A rich table, at least 120 columns wide; whole: and as wide as it takes for nothing to be folded or cut."""
    from rich.console import Console

    console = Console(width=max(120, Console().width), no_color=True)
    if whole:
        taken = console.measure(table, options=console.options.update(max_width=WIDEST)).maximum
        console.width = max(console.width, taken)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


def verdict(results: Mapping[str, Any]) -> str:
    """The answer and its sentences."""
    found = words.standing(results)
    return "\n".join([f"Verdict: {found['answer']}.", *found["sentences"]])


def edge_notes(results: Mapping[str, Any]) -> list[str]:
    """Notes on arms whose best learning rate was at an end of those tried."""
    return [f"note: {sentence}" for sentence in at_an_edge(results["arms"], results["protocol"])]


def data_notes(results: Mapping[str, Any]) -> list[str]:
    """Notes on the rows: how they were cut, and what is odd in them."""
    return [f"note: {note}" for note in (results.get("data") or {}).get("notes") or ()]


def everything(results: Mapping[str, Any]) -> str:
    """The table, the verdict, and what a person should know beside them."""
    return "\n".join([f"{table(results)}\n\n{verdict(results)}", *edge_notes(results), *data_notes(results)])
