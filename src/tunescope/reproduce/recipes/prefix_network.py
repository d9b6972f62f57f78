"""A prefix made by a network while it trains, or trained directly: which seeds and rates does each go wrong at?

Each way is trained at each of the rates by each seed, nothing chosen. A seed failed where its run diverged, for which
it has a score of zero, or where it came to less than half of the mean of the best line.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from tunescope.report.cells import Cell, Table
from tunescope.reproduce import corpus_line, corpus_table, piece, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Found, Settings

TITLE = "A prefix made by a network, or trained directly: scores, spread over seeds, seeds that failed"
SOURCE = "Li and Liang 2021 (arXiv:2101.00190), section 4.3: trained directly it is unstable, and a little worse"
TAKES = corpus_table.TAKES
KEEPS = True

LENGTH, WIDTH, SEEDS, HALF = 10, 512, 5, 0.5
WAYS = {"by a network": f"prefix:mlp={WIDTH},length={LENGTH}", "directly": f"prefix:length={LENGTH}"}
RATES = {"tuned": (1e-4, 1e-3, 1e-2, 1e-1), "paper": (8e-6, 8e-5, 8e-4, 8e-3)}  # 8e-5 is published, by a network


def settings(ask: Ask) -> Settings:
    rates = (1e-3, 1e-2) if ask.quick else RATES[ask.protocol]
    made = corpus_table.settings(ask, (), published.course(ask, published.TABLE_TO_TEXT), published.rows(ask))
    lines = [Line(f"{way}, {rate:g}", arm, part=f"{rate:g}") for rate in rates for way, arm in WAYS.items()]
    course = made["course"] | {"rates": (rates[0],), "full": None, "beyond": 0}  # a line has one, its own
    seeds = ask.seeds or (1 if ask.quick else SEEDS)
    return made | {"lines": corpus_table.kept(ask, lines, None), "course": course, "seeds": seeds}


worlds, units = corpus_line.worlds, corpus_table.units


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The line at its rate by each seed, each a comparison of its own: one that diverged leaves the others."""
    given, found = corpus_table.parts(settings), list[dict[str, Any]]()
    course = settings["course"] | {"rates": (float(unit["part"]),)}
    for seed in range(settings["seeds"]):
        own = settings | {"course": course, "seeds": [seed]}
        arm = corpus_line.compared(own, unit, folder / f"seed-{seed}", given)
        found.append(corpus_line.outcome(arm, settings["metrics"], folder / f"seed-{seed}"))
    lost = next((one for one in found if one["status"] not in piece.LASTING), None)
    if lost is not None:  # no seed that diverged: another attempt may score it
        return lost | {"scores": {}, "dev": []}
    done = [one for one in found if one["status"] == "done"]
    metrics = settings["metrics"]
    scores = {
        metric: [value for one in found for value in one["scores"].get(metric, (0.0,))] for metric in metrics if done
    }
    last = done[-1] if done else found[-1]
    return last | {"scores": scores, "dev": [value for one in done for value in one["dev"]]}


def table(settings: Settings, found: Found) -> Table:
    """A way at a rate a row: the first metric, the distance from the worst seed to the best, how many failed."""
    metric = settings["metrics"][0]
    scored = [tuple(outcome["scores"].get(metric, ())) for _, outcome in found]
    best = max((fmean(values) for values in scored if values), default=0.0)
    rows = []
    for line, values, (_, outcome) in zip(settings["lines"], scored, found, strict=True):
        failed = settings["seeds"] - sum(value > 0 and value >= HALF * best for value in values)
        how_many = f"{failed} of {settings['seeds']}" if values or outcome["status"] == "diverged" else ""
        spread = Cell((max(values) - min(values),), digits=2) if len(values) > 1 else Cell()
        text = "" if values else outcome["reason"] or "none"
        cells = [
            Cell(text=f"{outcome['stored']:,}"),
            Cell(values, text=text, digits=2, bounds=corpus_line.bounds(metric)),
        ]
        rows.append((line["label"], [*cells, spread, Cell(text=how_many)]))
    return Table(("parameters", metric, "spread", "failed seeds"), rows, _notes(settings, found))


def _notes(settings: Settings, found: Found) -> list[str]:
    course, rows = settings["course"], settings["rows"]
    long = f"{course['steps']:,} steps" if course["epochs"] is None else f"{course['epochs']} epochs in batches"
    some = f" at most {rows['train']:,} rows," if "train" in rows else ""
    return [
        f"Model: {settings['parameters']:,} parameters. Prefixes of {LENGTH}, a network of {WIDTH};{some} {long} of "
        f"{course['batch_size']} in {course['precision']}, at the rate that the line names, {settings['seeds']} seeds.",
        "Spread: from the worst seed to the best. Failed: diverged, with a score of 0, or less than half of the mean "
        "of the best line. Parameters are those stored: the network is folded away.",
        *dict.fromkeys(note for _, outcome in found for note in outcome["told"]),
    ]
