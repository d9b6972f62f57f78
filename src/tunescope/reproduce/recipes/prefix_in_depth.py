"""Petrov et al. 2024, in depth: does a trained prefix move attention over the text, and is it crowded out by the text?

In its own layer, on the same inputs, a prefix cannot: an identity. Behind the first layer inputs differ, and what
happens there is a measurement; so is what critics say, that a prefix fails by competing with the text in one softmax:
the share of attention that it gets, against how much text there is. LoRA of rank 1, which changes how tokens attend to
one another, is measured in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, linear_regression, median
from typing import Any

from markupsafe import Markup

from tunescope.report.cells import Table
from tunescope.report.finding import Curves, Line
from tunescope.report.pictures import draw
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _short_runs

TITLE = "A trained prefix in a deep decoder: how far attention over the text moves, and the prefix's share by length"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), section 4, behind the first layer"
TAKES = _short_runs.TAKES
GROWS = True

ARMS = {
    "prefix begun as demonstrations": f"prefix:length={_short_runs.LENGTH},init_from=demos",
    "prefix begun as noise": f"prefix:length={_short_runs.LENGTH},init_from=noise",
    "LoRA": "lora:rank=1",
}
BY_ITSELF = ("prefix begun as demonstrations", "LoRA")  # drawn so, too; all prefixes lie on one line there
BARE = "nothing attached"
DRAWN = {  # of each arm, its name in a picture and its colour
    "prefix begun as demonstrations": ("from demonstrations", "context"),
    "prefix begun as noise": ("from noise", "text"),
    "LoRA": ("LoRA", "delta"),
}
Row = tuple[str, tuple[float, float], Callable[[Any], float]]  # its name, what a number can be, how it is read
SHARE, LENGTH = (0.0, 1.0), (0.0, math.inf)
PLACES: dict[str, Callable[[list[float]], float]] = {
    "first": lambda values: values[0],
    "second": lambda values: values[min(1, len(values) - 1)],
    "middle": lambda values: values[len(values) // 2],
    "last": lambda values: values[-1],
}
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
PROSE, TEXTS, SEEN = 64, 4, 8  # tokens of prose in front of test rows; texts of the longest length; rows looked at
NOTES = [
    "Moved: total variation between the attention over the text of the bare model and of the tuned one, over the keys "
    "of the text alone; the mean over heads and queries. By itself: each layer on the bare model's inputs, where a "
    "prefix gives 0 in every layer by an identity (Petrov et al., section 4), and what stands there is rounding; of "
    "LoRA it is a measurement. In depth: two whole runs, a measurement for both. The paper does not rule it out.",
    "Share (lambda): attention on the prefix. Bias by content: the length of what the prefix adds to a head's output "
    "by that of what the text adds. By length: at queries that see more than 7/8 of so many tokens of English prose.",
    "Slope: of log(share / (1 - share)) against log(tokens), the mean over layers. -1: each token of the text takes as "
    "much of the softmax as any other, so that twice the text halves the prefix's odds; 0: length does not matter. "
    "The distance from the prefix grows with the length, too, and positions see it.",
    "One learning rate a method and no choice by a development score; prose in front of a row was never trained on.",
]


def settings(ask: Ask) -> Settings:
    size = {"steps": 4, "batch_size": 4} if ask.quick else {"steps": 40, "batch_size": 8}
    lengths = LENGTHS[:3] if ask.quick else LENGTHS
    more: Settings = {"arms": ARMS, "lengths": list(lengths), "prose": 8 if ask.quick else PROSE, "texts": TEXTS}
    return _short_runs.settings(ask) | size | {"every": size["steps"], "seen": SEEN} | more


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    trained = [{"arm": arm, "seed": seed} for seed in range(settings["seeds"]) for arm in settings["arms"]]
    return [{"arm": BARE, "seed": 0}, *trained]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.reproduce.recipes._depth import by_layer, by_length
    from tunescope.tasks.prompts.templates import edges
    from tunescope.trial.bench import room

    bench = _short_runs.bench_of(settings)
    rows, longest = _short_runs.tested_rows(bench, settings["rows"], in_front=0), room(bench, _short_runs.LENGTH)
    behind = _short_runs.tested_rows(bench, settings["rows"], in_front=settings["prose"])
    if unit["arm"] == BARE:
        return {"answers": _answers(bench, rows, behind)}
    text = settings["arms"][unit["arm"]]
    rate = settings["rates"][text.partition(":")[0]]
    entered, train = _short_runs.short_run(bench, text, None, rate, unit["seed"])
    with entered as tuned:
        seen = _short_runs.batch_of(bench, [row.input_ids for row in rows[: settings["seen"]]])
        before = by_layer(bench.model, tuned, seen)
        curve = train(tuned, lambda: None)
        lengths = [length for length in settings["lengths"] if longest is None or length <= longest]
        begin = edges(bench.tokenizer)[0]
        texts = [(*begin, *one)[: lengths[-1]] for one in _short_runs.prose(bench, lengths[-1], settings["texts"])]
        return {
            "curve": curve,
            "answers": _answers(bench, rows, behind),
            "before": before,
            "layers": by_layer(bench.model, tuned, seen),
            "lengths": by_length(bench.model, tuned, texts, lengths),
        }


def _answers(bench: Any, rows: Sequence[Any], behind: Sequence[Any]) -> dict[str, Any]:
    return {"alone": _short_runs.answers(bench, rows), "behind prose": _short_runs.answers(bench, behind)}


def table(settings: Settings, found: Found) -> Table:
    by_arm = {arm: [outcome for unit, outcome in found if unit["arm"] == arm] for arm in (*settings["arms"], BARE)}
    rows = [
        (label, [_short_runs.cell(read, outcomes, bounds) for outcomes in by_arm.values()])
        for label, bounds, read in [*_of_answers(settings), *_of_layers(), *_of_lengths(settings)]
    ]
    known = [(label, cells) for label, cells in rows if any(cell.values for cell in cells)]
    of = f"Here: {settings['steps']} steps of {settings['batch_size']} rows, {settings['rows']} test rows at most."
    trained = {arm: outcomes for arm, outcomes in by_arm.items() if arm != BARE and outcomes}
    return Table(tuple(by_arm), known, [*NOTES, of], pictures=_pictures(trained) if trained else {})


def _of_answers(settings: Settings) -> Iterator[Row]:
    yield "accuracy", SHARE, lambda found: found["answers"]["alone"]["accuracy"]
    behind = f"accuracy, {settings['prose']} tokens of prose in front"
    yield behind, SHARE, lambda found: found["answers"]["behind prose"]["accuracy"]


def _of_layers() -> Iterator[Row]:
    """Each row's name, what its numbers can be, and how it is read of a piece."""

    def layers(key: str, how: Callable[[list[float]], float], when: str = "layers") -> Callable[[Any], float]:
        return lambda found: how([layer[key] for layer in found[when]])

    def places(name: str, key: str, bounds: tuple[float, float]) -> Iterator[Row]:
        for place, at in PLACES.items():
            yield f"{name}, {place} layer", bounds, layers(key, at)

    yield "moved by itself, first layer", SHARE, layers("held", PLACES["first"])
    yield "moved by itself, every layer", SHARE, layers("held", fmean)
    yield "moved by itself, most at one query of a head", SHARE, layers("held_most", max)
    yield from places("moved in depth", "along", SHARE)
    yield "moved in depth, every layer", SHARE, layers("along", fmean)
    yield "moved in depth, every layer, before training", SHARE, layers("along", fmean, "before")
    yield "moved in depth, every layer, first token left out", SHARE, layers("along_behind_first", fmean)
    yield from places("share", "share", SHARE)
    yield "share, every layer", SHARE, layers("share", fmean)
    yield "share, every layer, before training", SHARE, layers("share", fmean, "before")
    yield from places("bias by content", "bias_by_content", LENGTH)
    yield "bias by content, median layer", LENGTH, layers("bias_by_content", median)


def _of_lengths(settings: Settings) -> Iterator[Row]:
    def mean(length: int, key: str) -> Callable[[Any], float]:
        return lambda found: fmean(found["lengths"][str(length)][key])

    for length in settings["lengths"]:
        yield f"share at {length} tokens", SHARE, mean(length, "share")
    yield "slope", _short_runs.FREE, _slope
    for length in settings["lengths"]:
        yield f"moved in depth at {length} tokens", SHARE, mean(length, "along")


def _slope(found: Mapping[str, Any]) -> float:
    """Of the log odds of the prefix's share against the log of the length, by least squares, the mean over layers."""
    logs = [math.log(float(length)) for length in found["lengths"]]
    if len(logs) < 2:
        return math.nan
    layers = zip(*(at["log_odds"] for at in found["lengths"].values()), strict=True)
    return fmean(linear_regression(logs, odds).slope for odds in layers)


def _pictures(trained: Mapping[str, Sequence[Any]]) -> dict[str, Markup]:
    """How far attention moved by layer, the prefixes' share by layer, and that by length."""
    prefixes = {arm: outcomes for arm, outcomes in trained.items() if "share" in outcomes[0]["layers"][0]}
    moved = [_line(arm, ", in depth", _by_layer(outcomes, "along")) for arm, outcomes in trained.items()]
    moved += [_line(arm, ", by itself", _by_layer(trained[arm], "held")) for arm in BY_ITSELF if arm in trained]
    shares = [_line(arm, "", _by_layer(outcomes, "share")) for arm, outcomes in prefixes.items()]
    lengths = sorted(next(iter(trained.values()))[0]["lengths"], key=int)  # JSON has sorted them as words
    by_length = [
        _line(arm, "", [[fmean(one["lengths"][n]["share"]) for n in lengths] for one in outcomes])
        for arm, outcomes in prefixes.items()
    ]
    layers = [str(index) for index in range(len(moved[0].values))]
    found = {
        "moved-by-layer": Curves("Attention over the text moved", "layer", "total variation", layers, moved),
        "share-by-layer": Curves("Attention on the prefix", "layer", "share", layers, shares),
        "share-by-length": Curves("Attention on the prefix", "tokens of text", "share", lengths, by_length),
    }
    return {f"{name}.svg": draw(picture) for name, picture in found.items() if picture.lines}


def _by_layer(outcomes: Sequence[Any], key: str) -> list[list[float]]:
    return [[layer[key] for layer in one["layers"]] for one in outcomes]


def _line(arm: str, state: str, curves: Sequence[Sequence[float]]) -> Line:
    """The mean of the seeds' curves, and their range."""
    points, (name, style) = list(zip(*curves, strict=True)), DRAWN[arm]
    return Line(name + state, [*map(fmean, points)], [*map(min, points)], [*map(max, points)], style)
