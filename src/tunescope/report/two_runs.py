"""Two runs beside each other: what was asked differently, scores arm by arm, and the rows whose answers changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from tunescope.data import scores
from tunescope.report import text
from tunescope.report.page import check_own, file, policy, template
from tunescope.report.verdict import stats
from tunescope.report.view import View, view
from tunescope.system import files

Json = Mapping[str, Any]
ROWS = 200  # whose answers changed, on the page


@dataclass(frozen=True)
class TwoRuns:
    """names: of the runs. facts: (what, of the first, of the second) where they differ. arms: those of both runs.

    changed: the rows whose answers changed, as far as results hold them. notes: what the numbers do not say.
    """

    names: tuple[str, str]
    views: tuple[View, View]
    facts: list[tuple[str, str, str]]
    arms: list[dict[str, Any]]
    alone: tuple[list[str], list[str]]
    changed: list[dict[str, Any]]
    notes: list[str]


def two_runs(first: Json, second: Json, names: tuple[str, str] = ("A", "B")) -> TwoRuns:
    """`second` against `first`.

    Raises:
        UserError: the results of one are of another version or have no arms.
    """
    views = view(dict(first)), view(dict(second))
    shared = _shared(first, second)
    same_rows = _tested(first) == _tested(second) is not None
    metrics = [str((run.get("task") or {}).get("metric")) for run in (first, second)]
    inputs = ((first.get("data") or {}).get("test") or {}).get("inputs")
    arms = [_arm(a, b, metrics, same_rows, inputs) for a, b in shared]
    used = {str(one["name"]) for one, _ in shared}, {str(one["name"]) for _, one in shared}
    left = [
        [arm["name"] for arm in seen.arms if arm["done"] and str(run["arms"][arm["index"]]["name"]) not in known]
        for seen, run, known in zip(views, (first, second), used, strict=True)
    ]
    short = (str(text.clean(names[0])), str(text.clean(names[1])))
    changed = list(_changed(first, second, shared)) if same_rows else []
    notes = [*_notes(views, same_rows, shared), *_over_some_seeds(arms), *(_over_few_seeds(arms) if same_rows else ())]
    facts = [*_facts(views), *_other_methods(shared)]
    return TwoRuns(short, views, facts, arms, (left[0], left[1]), changed, notes)


def _shared(first: Json, second: Json) -> list[tuple[Json, Json]]:
    """Finished arms of one name; of those left over, of one spec."""
    done = [[arm for arm in run["arms"] if arm.get("status") == "done" and arm.get("runs")] for run in (first, second)]
    found: dict[int, tuple[Json, Json]] = {}
    for key in ("name", "spec"):
        for at, one in enumerate(done[0]):
            free = (other for other in done[1] if not any(other is taken for _, taken in found.values()))
            same = next((other for other in free if one.get(key) and one[key] == other.get(key)), None)
            if at not in found and same is not None:
                found[at] = one, same
    return [found[at] for at in sorted(found)]


def _other_methods(shared: Sequence[tuple[Json, Json]]) -> Iterator[tuple[str, str, str]]:
    """Arms of one name that are two methods."""
    for one, other in shared:
        specs = str(text.clean(one.get("spec"))), str(text.clean(other.get("spec")))
        if one.get("spec") != other.get("spec"):
            yield f"arm {text.clean(str(one.get('name')))}", *specs


def _tested(run: Json) -> tuple[object, ...] | None:
    """What the test rows are, and how they are scored; None where results do not tell the rows.

    Rows cut out of the training file have its sha256, whichever they are: their own is `cut`, which older results lack.
    """
    data, task = run.get("data") or {}, run.get("task") or {}
    test = data.get("test") or {}
    is_cut = test.get("sha256") == (data.get("train") or {}).get("sha256")
    rows = test.get("cut") if is_cut else test.get("sha256")
    scored = task.get("metric"), task.get("compared"), tuple(task.get("labels") or ())  # compared: in what case, too
    return (rows, test.get("rows"), *scored) if rows else None


def _arm(a: Json, b: Json, metrics: list[str], same_rows: bool, inputs: list[int] | None) -> dict[str, Any]:
    """Scores, and where both had the same test rows the paired difference and the answers that changed.

    Scores of two metrics have no difference. over: the seeds that the difference is over, where a score has others too.
    """
    metric, scales = metrics[0], [scores.scale(one) for one in metrics]
    runs = _spread(a, b), _spread(b, a)
    seeds = sorted(set(runs[0]) & set(runs[1]))
    shapes = {runs[side][seed].shape for side in (0, 1) for seed in seeds}
    paired = same_rows and len(shapes) == 1
    gap = stats.paired(runs[1], runs[0], stats.scorer(metric), inputs=inputs) if paired else None
    values = [_score(one) for one in (a, b)]
    known = [value for value in values if value is not None]
    comparable = len(known) == 2 and metrics[0] == metrics[1]
    difference = gap.value if gap else known[1] - known[0] if comparable else None
    return {
        "name": text.middle(str(text.clean(str(a.get("name")))), 80),
        "group": a.get("group"),
        "shown": [text.score(value, scale) for value, scale in zip(values, scales, strict=True)],
        "span": [text.span(one.get("interval"), scale) for one, scale in zip((a, b), scales, strict=True)],
        "difference": text.score(difference, scales[0], sign=True),
        "gap": text.span([gap.low, gap.high], scales[0], sign=True) if gap else "",
        "common": len(seeds) if runs[0] and runs[1] and _varies(a) and _varies(b) else None,
        "over": seeds if gap and runs[0].keys() != runs[1].keys() else [],
        **(_moves(a, b) if paired and metric == scores.ACCURACY else {"better": None, "worse": None, "other": None}),
    }


def _spread(arm: Json, other: Json) -> dict[int, Any]:
    """The arm's rows by seed; what is the same whatever the seed ran once, and stands for every seed of the other."""
    runs = stats.by_seed(arm["runs"])
    if _varies(arm) or len(runs) != 1:
        return runs
    return dict.fromkeys(stats.by_seed(other["runs"]) if _varies(other) else (0,), next(iter(runs.values())))


def _varies(arm: Json) -> bool:
    """Whether another seed gives another result; where it is not told, of what trains nothing and ran once not."""
    known = arm.get("varies")
    if known is not None:
        return bool(known)
    drawn = any(arm["runs"][0].get(part) for part in ("demonstrations", "found"))
    return arm.get("group") not in ("none", "text") or len(arm["runs"]) > 1 or drawn


def _score(arm: Json) -> float | None:
    value = arm.get("score")
    return float(value) if isinstance(value, int | float) else None


def _moves(a: Json, b: Json) -> dict[str, Any]:
    """At the first seed of each: rows that came right, went wrong, and are wrong in another way."""
    pairs = list(zip(a["runs"][0]["stats"], b["runs"][0]["stats"], strict=True))
    return {
        "better": sum(new[0] > old[0] for old, new in pairs),
        "worse": sum(new[0] < old[0] for old, new in pairs),
        "other": sum(new[0] == old[0] and new[2] != old[2] for old, new in pairs),
    }


def _facts(views: tuple[View, View]) -> Iterator[tuple[str, str, str]]:
    """What was asked or found differently, section by section."""
    if views[0].answer != views[1].answer:
        yield "verdict", views[0].answer, views[1].answer
    for section in ("model", "task", "protocol", "data", "versions"):
        both = [one.raw[section] for one in views]
        for key in dict.fromkeys([*both[0], *both[1]]):
            told = [_in_words(one.get(key)) for one in both]
            if told[0] != told[1]:
                yield f"{section}: {key.replace('_', ' ')}", told[0], told[1]


def _in_words(value: object) -> str:
    if isinstance(value, Mapping) and "sha256" in value:
        cut = f", cut {str(value['cut'])[:12]}" if value.get("cut") else ""
        return f"{value.get('path')}, {text.fact(value.get('rows'))} rows, sha256 {str(value['sha256'])[:12]}{cut}"
    return text.short(text.fact(value), 200)


def _changed(first: Json, second: Json, shared: Sequence[tuple[Json, Json]]) -> Iterator[dict[str, Any]]:
    """Rows that both results hold and that some arm answers differently now."""
    held = [run.get("examples") or {} for run in (first, second)]
    if not all(held):
        return
    places = [{name: at for at, name in enumerate(text.clean(one["arms"]))} for one in held]
    now = {_key(row): row for row in held[1]["rows"]}
    names = [tuple(str(text.clean(str(one["name"]))) for one in pair) for pair in shared]
    for row in held[0]["rows"]:
        other = now.get(_key(row))
        if other is None:
            continue
        answers = [
            (name, str(row["outputs"][places[0][name]]), str(other["outputs"][places[1][new]]))
            for name, new in names
            if name in places[0] and new in places[1]
        ]
        moved = [_move(one, row.get("references") or []) for one in answers if one[1] != one[2]]
        if moved:
            given = {"row": row.get("row"), "input": row.get("input") or "", "references": row.get("references") or []}
            yield text.said(given) | {"arms": moved}


def _move(answer: tuple[str, str, str], references: Sequence[str]) -> dict[str, Any]:
    name, before, after = answer
    return {
        "arm": name,
        "before": text.said(before),
        "after": text.said(after),
        "was": before in references,
        "is": after in references,
    }


def _key(row: Json) -> tuple[object, object]:
    return row.get("row"), row.get("input")


def _notes(views: tuple[View, View], same_rows: bool, shared: Sequence[object]) -> list[str]:
    found = []
    if not shared:
        found.append("No arm that finished is in both runs.")
    if not same_rows:
        found.append(
            "The runs were not tested on the same rows by the same metric, or results do not tell: differences have no "
            "interval."
        )
    if views[0].frame.metric != views[1].frame.metric:
        found.append("Scores of two metrics are no more than beside each other: they have no difference.")
    if any(views[0].raw["model"].get("fingerprint") != one.raw["model"].get("fingerprint") for one in views[1:]):
        found.append("The models have other weights.")
    found.append("Answers are compared at the first seed of each run; intervals are paired over the seeds of both.")
    return found


def _over_some_seeds(arms: Sequence[Json]) -> Iterator[str]:
    """Of which arms the difference is not that of the two scores beside it."""
    for arm in arms:
        if arm["over"]:
            seeds = f"seed{'s' * (len(arm['over']) > 1)} {', '.join(map(str, arm['over']))}"
            told = f"the difference is over {seeds} of both runs, and each score over all seeds of its own."
            yield f"{arm['name']}: {told}"


def _over_few_seeds(arms: Sequence[Json]) -> Iterator[str]:
    """Of which arms nothing tells, or no more than the test rows do, how far the difference could be another."""
    none = [arm["name"] for arm in arms if arm["common"] == 0]
    if none:
        yield f"The runs share no seed of {', '.join(none)}: the difference is of two means, and has no interval."
    one = [arm["name"] for arm in arms if arm["common"] == 1]
    if one:
        yield f"The runs share one seed of {', '.join(one)}: the interval is over test rows only."


def table(found: TwoRuns) -> Table:
    """For the terminal."""
    out = Table(title=Text(f"{found.names[1]} against {found.names[0]}"), box=None)
    out.add_column("arm", no_wrap=True)
    for name in (*text.apart(found.names, 24), "difference", "came right", "went wrong", "other answer"):
        out.add_column(Text(name), justify="right", no_wrap=True)
    names = text.apart([arm["name"] for arm in found.arms], 34)
    for arm, name in zip(found.arms, names, strict=True):
        gap = f" ({arm['gap']})" if arm["gap"] else ""
        moves = ["–" if arm[key] is None else f"{arm[key]:,}" for key in ("better", "worse", "other")]
        out.add_row(*map(Text, [name, *arm["shown"], f"{arm['difference']}{gap}", *moves]))
    return out


def lines(found: TwoRuns) -> list[str]:
    """What stands below the table: what differs, arms of one run alone, notes."""
    said = [f"{what}: {a} -> {b}" for what, a, b in found.facts]
    said += [f"in {name} alone: {', '.join(arms)}" for name, arms in zip(found.names, found.alone, strict=True) if arms]
    said += [f"{len(found.changed):,} of the rows that both results hold were answered differently by some arm."]
    return [*said, *(f"note: {note}" for note in found.notes)]


def html(found: TwoRuns) -> str:
    """One self-contained page; equal runs give equal bytes."""
    style = file("page.css") + file("outputs.css") + file("answers.css")
    made: str = template("two_runs.html.j2").render(
        policy=policy(style), style=Markup(style), found=found, rows=found.changed[:ROWS]
    )
    return made


def check_path(path: Path) -> None:
    """UserError where the path is there and is no page of two runs."""
    check_own(path, '<p class="about">two runs</p>', "a page of two runs", "name another: --out FILE.html")


def write(found: TwoRuns, path: Path) -> Path:
    files.put(path, html(found).encode())
    return path
