"""Wang et al. 2023: how much sooner is a query answered behind a few kept keys and values than behind the whole text?

The published ratio is against demonstrations that are read again with every query. Whoever keeps some keys and values
can keep them all, so that is a line too. Each query runs alone, as published; the ways take turns of ten queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.probes.anchors.compression import kept, positions_of, read
from tunescope.probes.anchors.loyalty import Queries
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import anchors

if TYPE_CHECKING:
    from tunescope.probes.anchors.round import Round
    from tunescope.tasks.prompts.spans import Spans
    from tunescope.tasks.task import Encoded

TITLE = "Compressed demonstrations: how much sooner a query is answered"
SOURCE = "Wang et al. 2023 (arXiv:2305.14160), section 4.2 (GPT2-XL and GPT-J, 1,000 queries)"
TAKES = ("protocol", "quick", "seeds", "model", "data", *anchors.OF_DATA)

SOME = (0.0, math.inf)
QUERIES = 100
TURN = 10  # queries of one way, before it is the next one's turn
AGAIN, ALL, ANCHORS, NONE = (
    "read again with every query",
    "all keys and values kept",
    "anchors kept",
    "no demonstrations",
)
PAPER = "1.1 to 2.9"  # over four corpora and two models


def settings(ask: Ask) -> Settings:
    if ask.model is None or ask.data is None:
        raise UserError(f"{ask.name} takes time of a given model: give --model and --data.")
    usual = TURN if ask.quick else None if ask.protocol == "paper" else QUERIES
    return anchors.settings(replace(ask, inputs=ask.inputs or usual))


def worlds(_settings: Settings) -> list[Any]:
    return []


def units(_settings: Settings) -> list[dict[str, Any]]:
    """All draws are one piece: beside another process no time would be worth much."""
    return [{"times": "of all draws"}]


def work(settings: Settings, _unit: dict[str, Any]) -> dict[str, Any]:
    return {"draws": [_draw(round) for round in anchors.rounds(settings, anchors.seeds_of(settings))]}


def _draw(round: Round) -> dict[str, Any]:
    """Of each way the positions in front and the seconds of a query, the median of each turn."""
    shown = round.prompts[0].spans
    queries = [prompt.query for prompt in round.prompts]
    turns = [dict(_turn(round, shown, queries[at : at + TURN])) for at in range(0, len(queries), TURN)]
    few = len(positions_of(shown, "anchors"))
    positions = {AGAIN: len(shown.ids), ALL: len(shown.ids), ANCHORS: few, NONE: 0}
    return {"positions": positions, "seconds": {way: [one[way] for one in turns] for way in positions}}


def _turn(round: Round, shown: Spans, rows: Sequence[Encoded]) -> Iterator[tuple[str, float]]:
    asked = Queries(round.model, round.tokenizer, rows, round.choices)
    whole = read(round.model, round.tokenizer, shown.ids)
    yield AGAIN, asked.seconds(before=shown)
    yield ALL, asked.seconds(whole)
    yield ANCHORS, asked.seconds(kept(whole, positions_of(shown, "anchors")))
    yield NONE, asked.seconds()


def table(settings: Settings, found: Found) -> Table:
    """A way a row: what stands in front, how many queries a second, and how many times those of the whole text."""
    draws = [draw for _, outcome in found for draw in outcome["draws"]]
    rows = []
    for way in (AGAIN, ALL, ANCHORS, NONE):
        positions = Cell(tuple(float(draw["positions"][way]) for draw in draws), digits=1, bounds=SOME)
        pace = Cell(tuple(1 / median(draw["seconds"][way]) for draw in draws), digits=2, bounds=SOME)
        times = tuple(_times(draw["seconds"], way) for draw in draws)
        ratio = Cell(text="1") if way == AGAIN else Cell(times, PAPER if way == ANCHORS else "", digits=2, bounds=SOME)
        rows.append((way, [positions, pace, ratio]))
    return Table(("positions in front", "queries a second", "times as fast"), rows, _notes(settings))


def _times(seconds: Mapping[str, Sequence[float]], way: str) -> float:
    """How many times as fast as the whole text read again, the median over turns: each is compared with its own."""
    return median(again / own for again, own in zip(seconds[AGAIN], seconds[way], strict=True))


def _notes(settings: Settings) -> list[str]:
    return [
        f"{settings['rows']:,} test rows at most, each alone, {settings['k']} of each class in front; the intervals "
        f"are over {settings['seeds']} draws of these. A draw's pace is that of its median turn of {TURN} queries; "
        "times as fast is the median over turns of a turn's own ratio. What is kept is read beforehand.",
        "The published ratio is of anchors against a text that is read again with every query, over four corpora and "
        "two models (GPT2-XL, GPT-J).",
    ]
