"""How far demonstrations can be compressed to the keys and values of a few positions, and which these should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from random import Random
from statistics import fmean
from typing import Any

from tunescope.probes.anchors.compression import positions_of
from tunescope.probes.anchors.importance import importance, most_important
from tunescope.probes.anchors.loyalty import Queries, measured_ways, trade_off
from tunescope.probes.anchors.prompts import Prompt
from tunescope.probes.anchors.round import Round
from tunescope.probes.anchors.summary import line, shown
from tunescope.report.finding import Curves, Finding

ORDER = 4
SIZES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
WEIGHED = 16  # queries that importance is measured on, at most; others than those that loyalty is measured on
DRAWS = 5  # of random positions, a size
WEIGHED_BY = (
    "by saliency: as many positions as anchors, those that queries take most from; ",
    "; by the others it was weighed what queries take most from",
)
COLUMNS = ("kept", "bytes", "accuracy", "label_loyalty", "word_loyalty", "seconds")


def measure(round: Round) -> dict[str, Any]:
    """Every way to give the demonstrations, and label loyalty by size; means where prompts differ in theirs.

    Raises UserError for an encoder-decoder, whose keys look at what follows.
    """
    groups: dict[tuple[int, ...], list[Prompt]] = {}
    for prompt in round.prompts:
        groups.setdefault(prompt.spans.ids, []).append(prompt)
    each = [_behind_one(round, prompts) for prompts in groups.values()]
    rows = [one.pop("rows") for one in each]
    return {"seed": round.seed, "rows": sum(rows), **_mean(each, rows)}


def _behind_one(round: Round, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Queries behind one set of demonstrations, some drawn by the seed for importance, the others to be scored."""
    spans = prompts[0].spans
    n = min(WEIGHED, len(prompts) // 2)
    weighing = set(Random(f"{round.seed} weighed").sample(range(len(prompts)), n))
    scored = [prompt.query for number, prompt in enumerate(prompts) if number not in weighing]
    asked = Queries(round.model, round.tokenizer, scored, round.choices)
    ways = {name: asdict(one) for name, one in measured_ways(asked, spans, seed=round.seed).items()}
    sizes = [max(1, int(share * len(spans.ids))) for share in SIZES]
    draw = Random(round.seed)
    others = range(1, len(spans.ids))  # the first position is kept: attention rests on it
    drawn = [(0, *sorted(draw.sample(others, size - 1))) for size in sizes for _ in range(DRAWS)]
    worth = (
        importance(round.model, round.tokenizer, [prompts[one] for one in sorted(weighing)], round.choices)
        if n
        else None
    )
    weighed = [] if worth is None else [most_important(worth, size) for size in sizes]
    loyal = [one.label_loyalty for one in trade_off(asked, spans, [*drawn, *weighed], timed=False)]
    at_random = loyal[: len(drawn)]
    curves = {"at random": [fmean(at_random[at : at + DRAWS]) for at in range(0, len(drawn), DRAWS)]}
    if worth is not None:
        curves["by saliency"] = loyal[len(drawn) :]
        (same,) = trade_off(asked, spans, [most_important(worth, len(positions_of(spans, "anchors")))])
        ways["by saliency"] = asdict(same)
    return {"ways": ways, "curves": curves, "rows": len(prompts) - n, "length": float(len(spans.ids))}


def _mean(each: Sequence[Mapping[str, Any]], rows: Sequence[int]) -> dict[str, Any]:
    """Number by number, through dicts and lists, each by its rows; what some have alone is left out."""
    made: dict[str, Any] = {}
    for key, first in each[0].items():
        column = [one[key] for one in each if key in one]
        if len(column) < len(each):
            continue
        if isinstance(first, Mapping):
            made[key] = _mean(column, rows)
        elif isinstance(first, list):
            made[key] = [fmean(values, rows) for values in zip(*column, strict=True)]
        else:
            made[key] = fmean(column, rows)
    return made


def _some(rows: Sequence[int]) -> str:
    return f"{rows[0]}" if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"


def finding(found: Sequence[dict[str, Any]]) -> Finding:
    """A row for every way, and loyalty against size."""
    rows = []
    for way in found[0]["ways"]:
        each = [one["ways"][way] for one in found]
        values = ([one[key] for one in each] for key in COLUMNS)
        rows.append((way, *(_cell(column, key) for column, key in zip(values, COLUMNS, strict=True))))
    curves, scored = found[0]["curves"], sorted({one["rows"] for one in found})
    styles = {"by saliency": "context", "at random": "text"}
    lines = [line(name, [one["curves"][name] for one in found], styles[name]) for name in curves]
    weighed = WEIGHED_BY if "by saliency" in curves else ("", "")
    return Finding(
        heading="Demonstrations compressed",
        says="Keys and values of a few positions, from one pass over the demonstrations, in the place of all. anchors: "
        "label words and formatting, as published; labels: label words alone; text_anchor: the anchors' tokens as a "
        "text of their own; random: a text token for every label token, the mean of 20 sets, and the best of them; "
        f"{weighed[0]}at random: the first position and others. Loyalty is to the answers with "
        f"all of them (Wang et al. 2023, section 4.2). Zero-shot's is the floor. Scored are {_some(scored)} rows of a "
        f"draw{weighed[1]}.",
        not_said="random-top is chosen on the rows that it is scored on, as published, and flatters itself. A model "
        "that answers most rows with one class is loyal whatever is kept: compare with zero-shot. Seconds are of this "
        "machine, a query at a time.",
        columns=("way", "positions kept", "kilobytes", "accuracy", "label loyalty", "word loyalty", "ms a query"),
        rows=rows,
        pictures=[Curves("Label loyalty by the share of positions kept", "kept", "label loyalty", _names(), lines)],
        numbers={"draws": list(found)},
    )


def _names() -> list[str]:
    return ["1/16", "1/8", "1/4", "1/2", "all"]


def _cell(values: Sequence[float], key: str) -> str:
    if key in ("kept", "bytes"):
        return f"{fmean(values) / (1024 if key == 'bytes' else 1):.1f}"
    if key == "seconds":
        return f"{1000 * fmean(values):.1f}"
    return shown(values, 0, 1)
