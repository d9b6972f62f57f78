"""A finished comparison as text for a terminal; reads results.json alone, so torch is not needed."""

from collections.abc import Mapping
from typing import Any


def table(results: Mapping[str, Any]) -> str:
    """The final table, at least 120 columns wide, so that lines in a file or a pipe stay whole."""
    from rich.console import Console

    from tunescope import report

    console = Console(width=max(120, Console().width), no_color=True)
    with console.capture() as captured:
        console.print(report.table(dict(results)))
    return captured.get().rstrip()


def verdict(results: Mapping[str, Any]) -> str:
    """The answer and its three sentences."""
    found = results["verdict"]
    return "\n".join([f"Verdict: {found['answer']}.", *found["sentences"]])


def everything(results: Mapping[str, Any]) -> str:
    return f"{table(results)}\n\n{verdict(results)}"
