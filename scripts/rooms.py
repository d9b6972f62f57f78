"""Draw docs/rooms.svg, the rooms of the package as one picture, from the imports and the rooms' docstrings.

    python -m scripts.rooms            # or: make rooms; `--check` only says whether the picture is up to date

A room stands above all that it imports. An arrow that follows from others is left out: whoever imports `trial` reaches
`tasks` by it, and may import `tasks` itself.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from textwrap import wrap

from scripts.imports import PACKAGE, between_rooms
from scripts.layout import Box, Line, laid_out

PICTURE = PACKAGE.parents[1] / "docs" / "rooms.svg"
STYLE = """
.back{fill:#f6f8fa;stroke:#d0d7de}.box{fill:#fff;stroke:#8c959f}
.name{font:600 15px ui-monospace,Menlo,Consolas,monospace}
.name,.what{fill:#1f2328}.what,.files{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
.files{fill:#59636e}.line{fill:none;stroke:#0969da;stroke-width:1.4}.head{fill:#0969da}
@media (prefers-color-scheme:dark){.back{fill:#0d1117;stroke:#30363d}.box{fill:#161b22;stroke:#6e7681}
.name,.what{fill:#f0f6fc}.files{fill:#9198a1}.line{stroke:#58a6ff}.head{fill:#58a6ff}}
"""


def floors(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """Room -> its floor: above all that it imports, and nearer to those who import it where these are more.

    Raises graphlib.CycleError for rooms in a circle.
    """
    order = list(graphlib.TopologicalSorter(edges).static_order())
    found: dict[str, int] = {}
    for room in order:
        found[room] = 1 + max((found[below] for below in edges[room]), default=-1)
    for room in reversed(order):
        above = [other for other in order if room in edges[other]]
        if len(above) > len(edges[room]):
            found[room] = min(found[other] for other in above) - 1
    return found | {room: 0 for room in order if not edges[room]}


def reduced(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that follow from two others."""
    reach: dict[str, set[str]] = {}
    for room in graphlib.TopologicalSorter(edges).static_order():
        reach[room] = edges[room].union(*(reach[below] for below in edges[room]))
    return {room: below - set().union(*(reach[one] for one in below)) for room, below in edges.items()}


def purpose(folder: Path) -> str:
    """The first line of the room's docstring, without what stands in brackets at its end."""
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    return said.split("\n")[0].partition(" (")[0].rstrip(".") + "."


def picture(package: Path = PACKAGE) -> str:
    edges = reduced(between_rooms(package))
    width, height, boxes, lines = laid_out(floors(edges), edges)
    files = {box.name: sum(1 for _ in (package / box.name).rglob("*.py")) for box in boxes}
    total = f"The {len(boxes)} rooms of {package.name}: each imports only what lies below it"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{total}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>',
            f'<rect class="back" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>',
            *map(_line, lines),
            *(_box(box, purpose(package / box.name), files[box.name]) for box in boxes),
            "</svg>\n",
        ]
    )


def _line(line: Line) -> str:
    said = f"<title>{line.start} imports {line.end}</title>"
    return f'<path class="line" marker-end="url(#tip)" d="{line.path}">{said}</path>'


def _box(box: Box, what: str, files: int) -> str:
    """The room's name and number of files in a line, what it is for below."""
    left, right = box.left + 12, box.left + box.width - 12
    words = "".join(
        f'<text class="what" x="{left}" y="{box.top + 41 + 15 * number}">{escape(line)}</text>'
        for number, line in enumerate(wrap(what.replace("`", ""), 42))
    )
    return (
        f'<rect class="box" x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="6"/>'
        f'<text class="name" x="{left}" y="{box.top + 22}">{box.name}/</text>'
        f'<text class="files" x="{right}" y="{box.top + 22}" text-anchor="end">{files} files</text>{words}'
    )


def main() -> int:
    drawn = picture()
    if "--check" in sys.argv:
        return int(not PICTURE.exists() or PICTURE.read_text("utf-8") != drawn)
    PICTURE.write_text(drawn, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
