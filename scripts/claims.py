"""What the papers claim and what our result files say of it, a line a claim: decided by intervals, not by hand.

A claim is that one number is above another. It holds where the interval of their difference lies above zero, taken
seed by seed (subset by subset, draw by draw) where both are of the same three or more, and from a comparison's own pair
where it has that; else where their intervals do not meet. Elsewhere it cannot be told; of one or two seeds there is no
interval, and the means alone are told. That one is no worse than another holds where the interval lies above a margin
below zero, which is ours and is told. Where something else than the claim explains why one is above, it cannot be told
either, and the claim says what; that takes a "holds" away and nothing else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.numbers import Number, compared, number, paired
from scripts.numbers import read as results

HERE = Path(__file__).resolve().parent
HOLDS, OTHER_WAY, UNTOLD, MEANS = "**holds**", "the other way round", "cannot be told", "in the mean"


@dataclass(frozen=True)
class Claim:
    """That `above` is above `below`, each the row and the column of a cell of results/`file`.json.

    published: the paper's two numbers, where the cells do not have them. typed: the options of the published size.
    but: what else explains that `above` is above; only of a claim that would hold by its numbers. fixed: `below` has
    no seed, and stands beside each seed of `above`. margin: `above` may be so much below, for the claim is "no worse".
    """

    paper: str
    says: str
    file: str
    above: tuple[str, str]
    below: tuple[str, str]
    model: str
    published: str = ""
    typed: str = ""
    but: str = ""
    fixed: bool = False
    margin: float = 0.0


def read() -> list[Claim]:
    """All claims, in the table's order."""
    found = tomllib.loads((HERE / "claims.toml").read_text("utf-8"))["claim"]
    return [Claim(**one | {which: tuple(one[which]) for which in ("above", "below")}) for one in found]


def table() -> str:
    """All claims as Markdown."""
    lines = ["| claim | published | here | it | with | the published size |", "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *_lines()])


def pretrained() -> str:
    """What the start of a prefix makes of it on a pretrained decoder, in half a sentence."""
    demos, noise, lora = (
        number("starts", arm, "sst2").shown for arm in ("prefix-demos", "prefix-noise", "lora:rank=1")
    )
    return f"as the text of demonstrations it has {demos} on SST-2, as noise {noise}, and LoRA of rank 1 {lora}"


def pilots() -> str:
    """How often a pilot's forecast was right on lab worlds, in a sentence; whole comparisons beside it."""
    result = results("verdict-calibration")
    rows = {one["label"]: [cell["text"] for cell in one["cells"]] for one in result["table"]["rows"]}
    every, unseen = rows["all"], rows["not looked at before"]
    said = (
        f"Of {every[0]} worlds it decided {every[2]}, of which {every[3]} rightly: {every[4]}. Of those that anybody "
        f"learned it left {every[5]} undecided. Of the {unseen[0]} worlds among them that were not looked at before it "
        f"decided {unseen[2]}, of which {unseen[3]} rightly: {unseen[4]}"
    )
    whole = rows.get("whole comparisons")
    if whole is None:
        return said
    return f"{said}. Whole comparisons of the same worlds: {whole[0]}, {whole[2]} decided, {whole[3]} rightly"


def _lines() -> Iterator[str]:
    paper = last = ""
    for one in read():
        above, below = number(one.file, *one.above), number(one.file, *one.below)
        said = f"*{one.paper}.* {_says(one)}" if one.paper != paper else _says(one)
        here = f"{above.shown} to {below.shown}{_told(one)} (`{one.file}`)"
        command = f"`{typed(one)}`" if one.typed else ""
        shown = "as above" if command and command == last else command
        told = f"{outcome(one)}: {one.but}" if one.but else outcome(one)
        cells = (said, _published(one, above, below), here, told, one.model, shown)
        yield f"| {' | '.join(cells)} |"
        paper, last = one.paper, command


def bullet(one: Claim) -> str:
    """The claim, what came of it, and the two numbers, as an item of a list."""
    above, below = number(one.file, *one.above), number(one.file, *one.below)
    told = outcome(one)
    told = f"{told} at this size" if told == UNTOLD else told
    theirs = _published(one, above, below)
    theirs = f"; published: {theirs}" if theirs and not theirs.startswith("in a ") else ""
    here = f"{above.shown} to {below.shown}{_told(one)}"
    here += f", but {one.but}" if one.but else ""
    return f"- {_says(one)}: {told if '*' in told else f'**{told}**'}, {here} ({one.model}){theirs}."


def typed(one: Claim) -> str:
    """The command of the published size."""
    recipe = results(one.file)["recipe"]
    return f"tunescope reproduce {recipe} {one.typed}"


def counts() -> str:
    """How many claims there are, and what came of them, in a sentence."""
    told = [outcome(one) for one in read()]
    certain, means = told.count(HOLDS), told.count(f"{HOLDS} {MEANS}")
    other = sum(one.startswith(OTHER_WAY) for one in told)
    taken = sum(bool(one.but) for one in read())
    return (
        f"of {len(told)} claims {certain} hold beyond the intervals and {means} in the mean alone, {other} come out "
        f"the other way round, and of {told.count(UNTOLD)} it cannot be told at the size that was tried ({taken} of "
        "these would hold by their numbers, but something else explains them: the table says what)"
    )


def outcome(one: Claim) -> str:
    """What came of the claim."""
    above, below = number(one.file, *one.above), number(one.file, *one.below)
    told = decided(above, below, difference(one, above, below), one.margin)
    if not one.but:
        return told
    if not told.startswith(HOLDS):
        raise ValueError(f"{one.says} ({one.file}): its numbers do not hold, so there is nothing to explain away.")
    return UNTOLD


def decided(above: Number, below: Number, less: tuple[float, tuple[float, float]] | None, margin: float = 0.0) -> str:
    """What two numbers say of a claim. less: their difference with its interval, where they are pairs."""
    if less is not None:
        low, high = less[1]
        return HOLDS if low > -margin else OTHER_WAY if high < -margin else UNTOLD
    if above.interval is None or below.interval is None:
        return f"{HOLDS if above.mean > below.mean - margin else OTHER_WAY} {MEANS}"
    if above.interval[0] > below.interval[1] - margin:
        return HOLDS
    return OTHER_WAY if above.interval[1] < below.interval[0] - margin else UNTOLD


def difference(one: Claim, above: Number, below: Number) -> tuple[float, tuple[float, float]] | None:
    """How far `above` is above `below`, and the 95 % interval of that; None where they are no pairs."""
    others = below.values * len(above.values) if one.fixed else below.values
    same = one.above[1] == one.below[1]
    return paired(above.values, others) or (compared(one.file, one.above[0], one.below[0]) if same else None)


def _says(one: Claim) -> str:
    """The claim, with its margin where it has one."""
    return f"{one.says} (by less than {one.margin:g})" if one.margin else one.says


def _told(one: Claim) -> str:
    """The difference in words; "" where there is none."""
    above, below = number(one.file, *one.above), number(one.file, *one.below)
    found = None if one.but else difference(one, above, below)
    if found is None:
        return ""
    digits = 1 if max(abs(above.mean), abs(below.mean)) >= 2 else 3
    mean, low, high = (f"{value:+.{digits}f}".replace("-", "\u2212") for value in (found[0], *found[1]))
    return f", by {mean} [{low}, {high}]"


def _published(one: Claim, above: Number, below: Number) -> str:
    return one.published or (f"{above.paper} to {below.paper}" if above.paper and below.paper else "")
