"""Few examples: do prefixes lose less than full tuning when there is little to learn from?

Every line is trained on several random subsets of each size, the same for all methods; the test rows stay. Its rate is
chosen on the first subset; its interval is over subsets. Under the paper's protocol each subset has development rows of
its own, three for ten that it trains on, and is trained on from two seeds, of which the mean counts.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from tunescope.data.corpus import Rows
from tunescope.models.load import load_tokenizer
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _curve

TITLE = "Few examples: score against the number of training rows"
SOURCE = (
    "Li and Liang 2021 (arXiv:2101.00190), section 6.3 and figure 3: prefixes beat full tuning by 2.9 BLEU on average"
)
TAKES = corpus_table.TAKES
KEEPS = True

SIZES = (50, 100, 200, 500)
# their table 8, of full tuning and of all else: that of the prefix
STEPS = {"full": {"50": 100, "100": 100, "200": 200, "500": 400}, "": {"50": 200, "100": 200, "200": 200, "500": 400}}
DEV, SEEDS = 0.3, 2  # of the paper: development rows for each that is trained on; seeds of a subset
ARMS = {
    "full tuning": ("full", None),
    "adapter, 2 %": ("adapter", 0.02),
    "LoRA, 2 %": ("lora", 0.02),
    "prefix, 2 %": ("prefix", 0.02),
    "prefix, 2 %, begun as examples": ("prefix:init_from=demos", 0.02),
}
WORDS = {"xsum": "summarize"}  # what the published prefix begins as, and is as long as; of any other corpus the next
OTHERWISE = "table-to-text:"


def settings(ask: Ask) -> Settings:
    sizes = (20, 40) if ask.quick else SIZES
    course = published.course(ask, published.FEW)
    subsets = ask.seeds or (1 if ask.quick else 3 if ask.protocol == "tuned" else 5)
    rows = {part: most for part, most in published.rows(ask).items() if part != "train"}
    made = corpus_table.settings(ask, (), course, rows)
    arms = ARMS if ask.protocol == "tuned" else _from_words(made)
    lines = [Line(label, arm, share, part=str(size)) for size in sizes for label, (arm, share) in arms.items()]
    has, most = len(corpus_table.parts(made)["train"]), max(sizes)
    most += round(DEV * most) if ask.protocol == "paper" else 0
    if most > has:
        raise corpus_table.too_few(most, has)
    kept = corpus_table.kept(ask, lines, made["course"]["network"])
    more: Settings = {"lines": kept, "seeds": 1, "subsets": subsets, "sizes": list(sizes)}
    if ask.protocol == "paper":
        more |= {"seeds": SEEDS} | ({} if ask.steps else {"steps_by_rows": STEPS})
    return made | more


def _from_words(made: Settings) -> dict[str, tuple[str, float | None]]:
    """The arms, with the published prefix in the place of that of 2 %."""
    text = WORDS.get(made["data"].partition(":")[0], OTHERWISE)
    length = len(load_tokenizer(made["model"])(text, add_special_tokens=False)["input_ids"])
    rivals = {label: arm for label, arm in ARMS.items() if not arm[0].startswith("prefix")}
    return rivals | {f"prefix of {length}, from {text!r}": (f"prefix:length={length},init_from=text,text={text}", None)}


worlds, units = corpus_line.worlds, corpus_table.units


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    size, given = int(unit["part"]), corpus_table.parts(settings)
    settings = published.with_steps(settings, unit)
    found: list[dict[str, Any]] = []
    for subset in range(settings["subsets"]):
        here = folder / f"subset-{subset}"
        arm = corpus_line.compared(settings, unit, here, {**given, **_drawn(settings, given["train"], size, subset)})
        found.append(corpus_line.outcome(arm, settings["metrics"], here))
        if arm["status"] != "done":
            break
        chosen = {"rates": [arm["learning_rate"]], "full": None, "beyond": 0}
        settings = settings | {"course": settings["course"] | chosen}
    return _together(found)


def own_dev(settings: Settings, unit: Mapping[str, Any]) -> int:
    """How many development inputs a subset has of its own, at most; 0 where it has those of the corpus."""
    drawn, most = _drawn_for_dev(settings, int(unit["part"])), settings["rows"].get("dev")
    return drawn if most is None else min(drawn, most)


def _drawn_for_dev(settings: Settings, size: int) -> int:
    return round(DEV * size) if settings["protocol"] == "paper" else 0


def _drawn(settings: Settings, rows: Any, size: int, subset: int) -> dict[str, Rows]:
    """A subset's training rows, and as published its own development rows, of none of them."""
    own = _drawn_for_dev(settings, size)
    drawn = random.Random(subset).sample(rows, size + own)
    train = {"train": Rows(drawn[:size], rows.notes)}
    dev = corpus_table.reduced(drawn[size:], settings["rows"].get("dev"), "dev")
    return train | {"dev": Rows(dev, ())} if own else train


def _together(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The outcomes of a line's subsets as one: the scores of each, the trials of the first, what ended the last."""
    scores = {
        metric: [fmean(part["scores"][metric]) for part in found if part["scores"].get(metric)]
        for metric in found[0]["scores"]
    }
    told = [note for part in found for note in part["told"]]
    dev = [one for part in found for one in part["dev"]]
    ended = {key: found[-1][key] for key in ("status", "reason")}
    return found[0] | ended | {"scores": scores, "told": list(dict.fromkeys(told)), "dev": dev}


def _by_rows(settings: Settings) -> list[str]:
    """What the paper's protocol has of its own."""
    told = [f"Each subset is trained on from {settings['seeds']} seeds, of which the mean counts."]
    if steps := settings.get("steps_by_rows"):
        each = ["; ".join(f"{rows} rows {count}" for rows, count in steps[arm].items()) for arm in ("full", "")]
        told += [f"Steps of full tuning, in place of those below: {each[0]}. Of all else: {each[1]}."]
    return told if settings["seeds"] > 1 else []


def table(settings: Settings, found: Found) -> Table:
    """A method a row, a size a column."""
    metric = settings["metrics"][0]
    cells: dict[str, dict[int, tuple[float, ...]]] = {}
    lost = dict[str, str]()
    for line, (unit, outcome) in zip(settings["lines"], found, strict=True):
        size, values = int(unit["part"]), tuple(outcome["scores"].get(metric, ()))
        cells.setdefault(line["label"], {})[size] = values
        if len(values) < settings["subsets"]:
            lost[f"{line['label']}, {size} rows"] = outcome["reason"] or "no score"
    rows = [
        (
            label,
            [Cell(by_size.get(size, ()), digits=2, bounds=corpus_line.bounds(metric)) for size in settings["sizes"]],
        )
        for label, by_size in cells.items()
    ]
    columns = tuple(f"{size} rows" for size in settings["sizes"])
    several = (len(settings["course"]["rates"]) or settings["course"]["trials"]) > 1
    chosen = "; a rate is chosen on the first of them" if several else ""
    told = [
        f"Cells: {metric}; the intervals are over {settings['subsets']} random subsets{chosen}.",
        *_by_rows(settings),
        *corpus_line.notes(settings | {"seeds": 1}, found),
    ]
    told += [f"{which}: not every subset has a score ({reason})." for which, reason in lost.items()]
    drawn = _curve.drawn(cells, ("training rows", metric), corpus_line.bounds(metric))
    return Table(columns, rows, told, pictures={"prefix-low-data.svg": drawn})
