"""The page of a recipe that was run, from its table and from the folders of its lines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunescope.report import recipe_page
from tunescope.report.cells import Table
from tunescope.reproduce.corpus_table import OF_UNIT
from tunescope.reproduce.piece import named
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.show import ours
from tunescope.system import run_folder

Json = dict[str, Any]


def page(result: Json, settings: Settings, table: Table, found: Found, out: Path) -> str:
    """HTML, for report.html in the run's folder `out`."""
    shown = [(label, [(ours(cell), cell.paper) for cell in cells]) for label, cells in table.rows]
    lines = list(_lines(settings, found, out))
    pages = {name: f"{folder.relative_to(out).as_posix()}/report.html" for name, folder in lines}
    together = _together(lines) if "lines" in settings else None  # else each piece has a question of its own
    return recipe_page.page(result, shown, table.pictures, pages, together)


def _lines(settings: Settings, found: Found, out: Path) -> Iterator[tuple[str, Path]]:
    """What each line is called, and the folder of its comparison; of several the first."""
    given = settings.get("lines", ())
    for unit, _ in found:
        runs = sorted((out / "units" / run_folder.identity(unit)).glob("**/results.json"))
        if not runs:
            continue
        line: Json = next((one for one in given if all(unit.get(key) == one[key] for key in OF_UNIT)), {})
        part = f", {line['part']}" if line.get("part") else ""
        base = f"{Path(settings['bases'][unit['base']]['model']).name}: " if "bases" in settings else ""
        yield f"{base}{line.get('label') or named(unit)}{part}", runs[0].parent


def _together(lines: list[tuple[str, Path]]) -> Json | None:
    """What the lines wrote for the same rows, as if each were an arm of one comparison."""
    told = [(name, run_folder.read_results(folder).get("examples")) for name, folder in lines]
    wrote = [(name, one) for name, one in told if one and one["rows"] and "apart" not in one]  # labels are no outputs
    if not wrote:
        return None
    return {
        "of": wrote[0][1]["of"],
        "arms": [name for name, _ in wrote],
        "seeds": [one["seeds"][0] for _, one in wrote],
        "rows": [_row(rows) for rows in zip(*(one["rows"] for _, one in wrote), strict=True)],
    }


def _row(rows: tuple[Json, ...]) -> Json:
    """Every line was tested on the same rows, in their order."""
    outputs, scores = ([value for row in rows for value in row[key]] for key in ("outputs", "scores"))
    return {**rows[0], "outputs": outputs, "scores": scores}
