"""Where a decoder's attention sink is, what a prefix does to it, and which prefix begins well.

Heads of a pretrained decoder give much of their attention to a text's first token (Xiao et al. 2024, StreamingLLM),
whose key and value are unlike the others'. A prefix stands in front of that token. The starts differ in what stands
there: noise at the scale of the keys, noise with each dimension's own mean and spread, zeros, and the model's own keys
and values of sampled tokens or of demonstrations, with a sink among them and without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from markupsafe import Markup

from tunescope.report.cells import Table
from tunescope.report.finding import HeatMap
from tunescope.report.pictures import draw
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _short_runs

TITLE = "Attention sinks: where they are, what a prefix does to them, and how a prefix begins well"
SOURCE = "Xiao et al. 2024 (arXiv:2309.17453), section 3, for prefixes of Li and Liang 2021 (arXiv:2101.00190)"
TAKES = _short_runs.TAKES
GROWS = True

STARTS = (
    *("noise", "noise, each dimension's own", "noise behind a sink", "zeros", "sampled tokens"),
    *("demonstrations", "demonstrations without a sink"),
)
SHORT = {"noise, each dimension's own": "noise by dimension", "demonstrations without a sink": "demos without a sink"}
BARE = "nothing attached"
TEXTS = {"count": 8, "length": 64}  # of prose
NOTES = [
    "Loss on prose: nats a token of English prose behind the prefix. Loss and accuracy: of the task's test rows. Steps "
    "are of the project's own loop, one learning rate for all.",
    "On the text's first token, on the prefix, on its first position: the share of attention, the mean over layers, "
    "heads and queries that stand behind the eighth token of prose.",
    "A prefix of words begins with a sink of its own, for nothing stands before its first token. 'Behind a sink': the "
    "first key and value are those that the model makes of a text's first token, the others noise. 'Without a sink': "
    "the same demonstrations, read behind one more token that is left out.",
]


def settings(ask: Ask) -> Settings:
    size = {"steps": 4, "batch_size": 4} if ask.quick else {"steps": 40, "batch_size": 4}
    texts = {"count": 2, "length": 16} if ask.quick else TEXTS
    return _short_runs.settings(ask) | size | {"every": size["steps"] // 2, "texts": texts, "starts": list(STARTS)}


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    begun = [{"start": start, "seed": seed} for seed in range(settings["seeds"]) for start in settings["starts"]]
    return [{"start": BARE, "seed": 0}, *begun]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.reproduce.recipes._prefix_starts import begun
    from tunescope.reproduce.recipes._sinks import destinations, sinks
    from tunescope.tasks.answers.own_loss import window_losses
    from tunescope.tasks.prompts.templates import edges

    bench = _short_runs.bench_of(settings)
    rows = _short_runs.tested_rows(bench, settings["rows"], in_front=0)
    prose = _short_runs.prose(bench, **settings["texts"])

    def asked() -> dict[str, float]:
        losses = window_losses(bench.model, prose, bench.tokenizer)
        return _short_runs.answers(bench, rows) | {"prose": float(losses.mean())}

    begin, begins = edges(bench.tokenizer)[0], bench.tokenizer.bos_token_id
    texts = [(*begin, *one) for one in prose]
    if unit["start"] == BARE:
        named = {"as usual": texts} | ({} if begin or begins is None else {"begun": [(begins, *one) for one in prose]})
        own = {name: sinks(bench.model, some) for name, some in named.items()}
        return {"asked": [asked()], "sinks": own, "before": destinations(bench.model, texts, 0)}
    length = _short_runs.LENGTH
    artifact = begun(bench, unit["start"], length, unit["seed"])
    arm = f"prefix:length={length},init_from=zero"  # its spec is not attached: the artifact is
    entered, train = _short_runs.short_run(bench, arm, [artifact], settings["rates"]["prefix"], unit["seed"])
    with entered as tuned:
        found = [asked()]
        before = destinations(bench.model, texts, length)
        curve = train(tuned, lambda: found.append(asked()))
        return {"asked": found, "curve": curve, "before": before, "after": destinations(bench.model, texts, length)}


def table(settings: Settings, found: Found) -> Table:
    by_start = {
        start: [outcome for unit, outcome in found if unit["start"] == start] for start in (BARE, *settings["starts"])
    }
    columns = _columns(settings)
    rows = [
        (start, [_short_runs.cell(read, outcomes, bounds) for read, bounds in columns.values()])
        for start, outcomes in by_start.items()
    ]
    of = f"Here: {settings['steps']} steps of {settings['batch_size']} rows, {settings['rows']} test rows at most."
    return Table(
        tuple(columns), rows, [*_where_sinks_are(by_start[BARE]), *NOTES, of], pictures=_pictures(settings, by_start)
    )


def _columns(settings: Settings) -> dict[str, tuple[Callable[[Any], float], tuple[float, float]]]:
    """Column -> how it is read of a piece, and what its numbers can be."""
    half, whole = settings["every"], settings["steps"]
    share, nats = (0.0, 1.0), (0.0, math.inf)

    def asked(at: int, what: str) -> Callable[[Any], float]:
        return lambda one: float(one["asked"][at][what])

    def went(when: str, where: Callable[[Any], float]) -> Callable[[Any], float]:
        return lambda one: where(one[when])

    return {
        "loss on prose, begun": (asked(0, "prose"), nats),
        "loss, begun": (asked(0, "loss"), nats),
        "accuracy, begun": (asked(0, "accuracy"), share),
        f"accuracy, {half} steps": (asked(1, "accuracy"), share),
        f"accuracy, {whole} steps": (asked(2, "accuracy"), share),
        f"loss on prose, {whole} steps": (asked(2, "prose"), nats),
        "on the text's first token, begun": (went("before", lambda seen: seen["first"]), share),
        f"on the text's first token, {whole} steps": (went("after", lambda seen: seen["first"]), share),
        f"on the prefix, {whole} steps": (went("after", lambda seen: sum(seen["positions"])), share),
        f"on its first position, {whole} steps": (went("after", lambda seen: seen["positions"][0]), share),
    }


def _where_sinks_are(bare: Sequence[Any]) -> list[str]:
    """Where the bare model's sink is, in a sentence a kind of text."""
    named = {"as usual": "The bare model, in prose", "begun": "The same behind the token that begins a text"}
    return [_sentence(said, one["sinks"][name]) for one in bare for name, said in named.items() if name in one["sinks"]]


def _sentence(where: str, seen: Mapping[str, Any]) -> str:
    heads = [share for layer in seen["on_first"] for share in layer]
    means = [fmean(layer) for layer in seen["on_first"]]
    least, most = (pick(range(len(means)), key=means.__getitem__) for pick in (min, max))
    second, half = fmean(seen["on_second"]), sum(share > 0.5 for share in heads)
    key, value, outlier = (median(seen[name]) for name in ("key_norm", "value_norm", "key_outlier"))
    return (
        f"{where}: {fmean(heads):.3f} of attention is on the first token and {second:.3f} on the second; "
        f"{half} of {len(heads)} heads give the first more than half; by layer from "
        f"{means[least]:.3f} (layer {least}) to {means[most]:.3f} (layer {most}). In the median layer its key is "
        f"{key:.2f} times as long as the others', its value {value:.2f} times, and the largest dimension of "
        f"the others' keys is {outlier:.1f} times the median one."
    )


def _pictures(settings: Settings, by_start: Mapping[str, Sequence[Any]]) -> dict[str, Markup]:
    """The bare model's sink by layer and head; and where attention goes with each start, before training and after."""
    found = {}
    for one in by_start[BARE]:
        on_first = one["sinks"]["as usual"]["on_first"]
        layers, heads = ([f"{kind} {i}" for i in range(n)] for kind, n in _grid(on_first))
        found["heads.svg"] = draw(HeatMap("Attention on the first token of a text", layers, heads, on_first))
    for when, told in (("before", "begun"), ("after", "trained")):
        known = {start: [one[when] for one in outcomes if when in one] for start, outcomes in by_start.items()}
        rows = [(start, seen) for start, seen in known.items() if seen]
        if rows:
            goes = [[fmean(map(read, seen)) for read in _PLACES.values()] for _, seen in rows]
            names = [SHORT.get(start, start) for start, _ in rows]
            found[f"{told}.svg"] = draw(HeatMap(f"Where attention goes, {told}", names, [*_PLACES], goes))
    return found


_PLACES: dict[str, Callable[[Any], float]] = {
    "prefix, first position": lambda seen: float(sum(seen["positions"][:1])),
    "rest of the prefix": lambda seen: float(sum(seen["positions"][1:])),
    "text, first token": lambda seen: float(seen["first"]),
    "rest of the text": lambda seen: 1 - float(sum(seen["positions"]) + seen["first"]),
}


def _grid(rows: Sequence[Sequence[float]]) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("layer", len(rows)), ("head", len(rows[0]))
