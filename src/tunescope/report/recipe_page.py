"""The page of a recipe: its table with the paper's numbers, its drawings, and what its lines wrote, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tunescope.report import text
from tunescope.report.outputs import outputs
from tunescope.report.page import file, policy, template

Json = dict[str, Any]


def page(
    result: Json,
    shown: Sequence[tuple[str, Sequence[tuple[str, str]]]],
    drawings: Mapping[str, Markup],
    pages: Mapping[str, str],
    examples: Json | None,
) -> str:
    """One self-contained page; equal results give equal bytes.

    result: as result.json has it.
    shown: every row's label, and its cells as ours and the paper's words.
    pages: what a line is called -> where its own page lies, seen from this one.
    examples: as results.json has them, the lines in the place of arms; None where nothing was written.
    """
    style = file("page.css") + file("pictures.css") + file("findings.css") + file("outputs.css") + file("recipe.css")
    script = file("fields.js") + file("outputs.js")
    metrics = result["settings"].get("metrics") or [None]
    task = {"metric": metrics[0], "also": metrics[1:]}
    made: str = template("recipe.html.j2").render(
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        result=text.clean(result) | {"command": text.command(str(result["command"]))},
        rows=text.clean([[label, [list(cell) for cell in cells]] for label, cells in shown]),
        drawings=[{"title": text.clean(name), "drawn": drawn} for name, drawn in drawings.items()],
        pages=text.clean(dict(pages)),
        outputs=outputs(text.examples(examples), task, {}) if examples else None,
    )
    return made
