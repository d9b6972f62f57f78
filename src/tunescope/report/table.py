"""The final table for the terminal."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tunescope.report import other_text, text
from tunescope.report.view import view


def table(results: dict[str, Any]) -> Table:
    """The page's table as a rich Table; rich draws it without colour where the output is no terminal.

    Raises:
        UserError: the results are of another version or have no arms.
    """
    v = view(results)
    out = Table(title=Text(f"{v.answer}: {v.frame.metric} of {v.raw['model'].get('name') or 'the model'}"), box=None)
    out.add_column("arm", no_wrap=True)
    numbers = ["score", "95 % interval", *(["balanced"] if v.is_balanced else [])]
    numbers += v.also
    names = [arm["name"] for arm in v.arms]
    headings = dict(zip(names, text.apart(names, 20), strict=True))
    numbers += [f"against {escape(headings.get(v.best or '', ''))}", *(["forgets"] if v.forgets else [])]
    numbers += ["stored", "rate", "time"]
    for name in numbers:
        out.add_column(name, justify="right", no_wrap=True)
    out.add_column("status", no_wrap=True)
    for arm, name in zip(v.arms, text.apart(names, 34), strict=True):
        cells = [arm["shown"], arm["span"], *([arm["balanced_shown"]] if v.is_balanced else [])]
        cells += [one["shown"] for one in arm["also"]]
        cells += [" ".join(filter(None, _behind(arm)))]
        cells += [f"{arm['forgets']['shown']} {arm['forgets']['error']}".strip()] if v.forgets else []
        cells += [text.count(arm["stored"]), text.rates(arm["learning_rates"]), text.seconds(arm["seconds"])]
        shown = cells if arm["done"] else [""] * len(cells)
        out.add_row(*map(Text, [name, *shown, arm["status"]]), style=None if arm["done"] else "dim")
    said = [one for one in (v.beaten, other_text.line(v.raw.get("forgetting"), v.done)) if one]
    said += [f"{arm['name']} {arm['status']}: {arm['reason']}" for arm in v.arms if arm["reason"]]
    said += [f"{arm['name']}: {remark}" for arm in v.arms for remark in arm["remarks"]]
    if said:
        out.caption, out.caption_justify = Text("\n".join(said)), "left"
    return out


def _behind(arm: dict[str, Any]) -> tuple[str, str]:
    difference, span = arm["behind"]
    return difference, f"({span})" if span else ""
