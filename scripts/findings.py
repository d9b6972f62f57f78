"""The blocks of docs/findings/, one a results file: claims with what came of them, a picture, the table, the command.

A page asks for one by `<!-- finding FILE | PICTURE --><!-- / finding -->`. FILE is one of results/ without .json.
PICTURE is a column of its table, `grid`, `training` (scripts/finding_pictures.py), or a drawing of results/ by its
name. A table that another page has is linked there; otherwise it stands behind a fold.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts import claims, claims_picture, finding_pictures, paper_table
from scripts.numbers import RESULTS, answer, read
from scripts.results import REAL

DOCS = RESULTS.parent / "docs"
FRONT, PICTURES = DOCS / "findings.md", DOCS / "findings"
BLOCK = re.compile(r"<!-- finding ([^|>]+?) \| ([^>]+?) -->.*?<!-- / finding -->", re.DOTALL)


def pages() -> list[Path]:
    """The front page, and those of the questions, beside their pictures."""
    return [FRONT, *sorted(PICTURES.glob("*.md"))]


def filled(text: str) -> str:
    """A page of them with every block as it is to be."""
    return BLOCK.sub(
        lambda found: f"{found[0].partition('-->')[0]}-->\n\n{block(*found.groups())}\n\n<!-- / finding -->", text
    )


def block(file: str, picture: str) -> str:
    """All that stands in one."""
    came = [claims.bullet(one) for one in claims.read() if one.file == file]
    result = read(file)
    if "verdict" in result:
        came.append(_verdict(result))
    return "\n\n".join(["\n".join(came), _image(file, picture), *_table(file, result)]).strip()


def _image(file: str, picture: str) -> str:
    where = f"../../results/{picture}" if picture.endswith(".svg") else f"{file}.svg"
    drawn = (RESULTS / picture).read_text("utf-8") if picture.endswith(".svg") else drawing(file, picture)
    told = html.unescape(re.findall(r'aria-label="([^"]*)"', drawn)[0]).replace("[", "(").replace("]", ")")
    return f"![{told}]({where})"


def drawing(file: str, picture: str) -> str:
    """The <svg> of a block."""
    if picture == "grid":
        return finding_pictures.grid(file)
    return finding_pictures.training(file) if picture == "training" else finding_pictures.dots(file, picture)


def pictures(text: str) -> dict[Path, str]:
    """Every picture of the pages, whose text this is, and its place, but for those that results/ has."""
    asked = [(file, picture) for file, picture in BLOCK.findall(text) if not picture.endswith(".svg")]
    made = {PICTURES / f"{file}.svg": drawing(file, picture) for file, picture in asked}
    return made | {PICTURES / "claims.svg": claims_picture.outcomes(claims.read())}


def _verdict(result: dict[str, Any]) -> str:
    """A comparison's answer, and the difference of the two arms that it is of."""
    verdict, metric = result["verdict"], result["task"]["metric"]
    said = f"- The verdict of the comparison: {answer(result)}"
    pair = (verdict["evidence"] or {}).get("pair")
    if pair:
        low, high, level = pair["low"], pair["high"], f"{100 * pair['level']:.4g} %"
        apart = f"{pair['difference']:.3f} [{low:.3f}, {high:.3f}]"
        said += f"; {pair['arm']} less {pair['other']} is {apart} in {metric} (paired, {level} interval)"
    chosen = (verdict["evidence"] or {}).get("chosen_context")
    if chosen:
        apart = f"{chosen['difference']:.3f} [{chosen['low']:.3f}, {chosen['high']:.3f}]"
        said += f"; of its runs the one that the development rows chose less the other's mean is {apart}"
    return f"{said}."


def _table(file: str, result: dict[str, Any]) -> Iterator[str]:
    """The table behind a fold, or where it is, with the command; and the command of the published size."""
    elsewhere = home(file)
    if elsewhere:
        yield f"The table: [{elsewhere[0]}](../{elsewhere[1]}). The command: `{_made_by(file, result)}`."
    else:
        yield "<details>\n<summary>The table, and the command</summary>"
        yield paper_table.table(result)
        yield "</details>"
    published = list(dict.fromkeys(claims.typed(one) for one in claims.read() if one.file == file and one.typed))
    if published:
        yield f"At the published size: `{'`, `'.join(published)}`."


def _made_by(file: str, result: dict[str, Any]) -> str:
    if file in REAL:
        return f"python -m scripts.results {file} --data DATA --model MODEL"
    made: str = result.get("command", f"python -m scripts.{file} CORPUS --data DATA --model MODEL")
    return made


def home(file: str) -> tuple[str, str] | None:
    """The heading and the link of the section of another page that has the file's table."""
    wanted = rf"\*\*.*`results/{re.escape(file)}\.json`|<!-- (?:table|starts|search):{re.escape(file)}:begin -->"
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text("utf-8")
        found = re.search(wanted, text)
        if found:
            heading = re.findall(r"^#+ (.*)$", text[: found.start()], re.MULTILINE)[-1]
            return heading, f"{path.relative_to(DOCS).as_posix()}#{slug(heading)}"
    return None


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
