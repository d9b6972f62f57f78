"""results.json -> one self-contained HTML page: no network, no inline handlers, no script or style but its own."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader
from markupsafe import Markup

from tunescope.errors import UserError
from tunescope.report import charts, pictures, text
from tunescope.report.answers import answers
from tunescope.report.finding import AttentionMap, HeatMap, Pair, Picture
from tunescope.report.next_steps import steps
from tunescope.report.outputs import outputs
from tunescope.report.use import use
from tunescope.report.view import View, view
from tunescope.system import files as whole

HEAD = 2**16  # bytes of a page, with its style and the first lines behind it


def write(results: dict[str, Any], path: str | Path) -> Path:
    """Write the page of a results.json dict to `path`, and return the path.

    Raises:
        UserError: the results are of another version or have no arms.
    """
    path = Path(path)
    written = html(results)
    whole.put(path, written.encode())
    return path


def check_own(path: Path, mark: str, what: str, instead: str) -> None:
    """UserError where the path is there and is no page with the mark: what another made is not written over."""
    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as page:
            if mark.encode() in page.read(HEAD):
                return
    raise UserError(f"{path} is there and is not {what}; move it away, or {instead}.")


def html(results: dict[str, Any]) -> str:
    """The page. Equal results give equal bytes."""
    v = view(results)
    style = file("page.css") + file("pictures.css") + file("outputs.css") + file("answers.css")
    script = file("page.js") + file("fields.js") + file("outputs.js") + file("answers.js")
    labels = answers(results, v.arms, v.best_key)
    groups = {arm["name"]: arm["group"] for arm in v.arms}
    page: str = template("page.html.j2").render(
        v=v,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
        budget_chart=charts.budget(v.done, v.frame) if v.done else None,
        strips={arm["index"]: charts.strip(arm, v.frame) for arm in v.done},
        panels=_panels(v),
        inside=_inside(v.raw.get("inside") or {}),
        next=[{"why": text.clean(one["why"]), "command": text.command(one["command"])} for one in steps(results)],
        use=use(results, v.arms),
        answers=labels,
        outputs=None if labels else outputs(v.raw.get("examples"), v.raw["task"], groups),
    )
    return page


def _panels(v: View) -> list[dict[str, Any]]:
    """The arms that were trained, with their three small charts."""
    panels = []
    for arm in v.arms:
        shown = [charts.curves(arm, v.frame, "dev"), charts.curves(arm, v.frame, "loss"), charts.rates(arm, v.frame)]
        if any(shown):
            panels.append({"arm": arm, "charts": shown})
    return panels


def _inside(found: dict[str, Any]) -> dict[str, Any] | None:
    """The pictures of what the best arms did inside attention, drawn; None where there are none."""
    if not found.get("figure"):
        return None
    shares = [HeatMap(**found["shares"])] if found.get("shares") else []
    whole = [AttentionMap(**one) for one in found["figure"]]
    pairs = [Pair(one["title"], AttentionMap(**one["before"]), AttentionMap(**one["after"])) for one in found["pairs"]]
    shown: list[Picture] = [*whole, *pairs, *shares]
    drawings = [{"title": one.title, "drawn": pictures.draw(one)} for one in shown]
    return {"where": f"{found['layer']}, head {found['head']}", "drawings": drawings}


def policy(style: str, script: str = "") -> str:
    """Nothing is fetched, and only these inline blocks count: injected markup could do nothing."""
    scripts = f" script-src '{_hash(script)}';" if script else ""
    return f"default-src 'none'; style-src '{_hash(style)}';{scripts} base-uri 'none'; form-action 'none'"


def _hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


@cache
def file(name: str) -> str:
    return files("tunescope.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def template(name: str) -> Any:
    """One of this folder, with what it includes from there; whatever it is given is escaped."""
    environment = Environment(loader=FunctionLoader(file), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "count": text.count,
        "rates": text.rates,
        "seconds": text.seconds,
        "memory": text.memory,
        "short": text.short,
        "fact": text.fact,
        "named": text.metric,
    }
    return environment.get_template(name)
