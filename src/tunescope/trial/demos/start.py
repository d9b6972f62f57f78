"""Prefixes and soft prompts that begin as demonstrations: solved training rows, as many as their length takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.methods.artifact import KVContext
from tunescope.models.positions import is_rotary
from tunescope.tasks.facts import positions
from tunescope.tasks.task import labelled
from tunescope.trial.bench import room
from tunescope.trial.chats import turns_of
from tunescope.trial.demos import draw
from tunescope.trial.plan import PARTS as PLAN_PARTS

if TYPE_CHECKING:
    from tunescope.methods.artifact import Spec
    from tunescope.tasks.task import Task
    from tunescope.trial.bench import Bench

DEMOS = "demos"
ENOUGH = 4  # rows shown, or one of each label where these are more; longer rows are left out for it
POOL = 512  # rows looked at
LOST = 0.01  # of the rows' text at most is cut for a prefix that begins as demonstrations
PARTS = (1, 2, 4, 8, 16, 32)  # the shortest 1/part of each label's rows are drawn from


def with_usual(specs: Sequence[Any], bench: Bench, task: Task | None = None) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The specs, and what is to be told of how they begin; one of which it is not said begins as demonstrations.

    It does not where rows would lose more than `LOST` of their text to a prefix that takes positions only because it
    begins as words: it then begins as noise, which takes none and is far behind (docs/verdict.md). Where a chat can
    have no earlier turns it begins as sampled tokens. task: as the arm asks the rows.
    """
    pairs = [_usual(spec, bench, task) if _is_open(spec) else (spec, "") for spec in specs]
    return tuple(spec for spec, _ in pairs), tuple(told for _, told in pairs if told)


def _usual(spec: Spec, bench: Bench, task: Task | None) -> tuple[Spec, str]:
    """The spec with its start, and what is to be told of it."""
    most, length, turns = positions(bench.model.config, bench.tokenizer), _length(spec), turns_of(bench)
    if most is not None and length > most:
        return _wordless(spec, f"it has {length} positions, and the model's text at most {most}. Make it shorter.")
    takes_more = isinstance(spec, KVContext) and spec.positions is None and is_rotary(bench.model)
    lost, share = _lost(bench, length, task) if takes_more and most is not None else ("", 0.0)
    if share > LOST:
        return _wordless(spec, f"its {length} positions would {lost}. Make it, or the rows, shorter.")
    if turns is not None and turns.single:
        also = f" Its {length} positions {lost}." if lost else ""
        return _turnless(spec, bench, f"these are earlier turns of a chat, and {turns.single}.{also}")
    return _as(spec, DEMOS), f"begins as demonstrations, whose {length} positions {lost}." if lost else ""


def _as(spec: Spec, begin: str) -> Spec:
    return replace(spec, init_from=begin)  # type: ignore[type-var]


def _wordless(spec: Spec, why: str) -> tuple[Spec, str]:
    """A prefix as it was, which begins as noise and takes no positions; any other context, which is refused later."""
    if not isinstance(spec, KVContext):
        return spec, ""
    begin = "noise" if getattr(spec, "mlp", None) is None else "its network does"
    told = f"begins as {begin}, not as demonstrations, and so far behind them: {why}"
    return _textless(spec), told + _unread(spec)


def _turnless(spec: Spec, bench: Bench, why: str) -> tuple[Spec, str]:
    """A context that begins as sampled tokens; a prefix not where the text would not stand behind them."""
    if isinstance(spec, KVContext) and spec.positions == "same" and is_rotary(bench.model):
        return _wordless(spec, why)
    told = f"begins as sampled tokens, not as demonstrations, and so behind them: {why}{_unread(spec)}"
    return _textless(_as(spec, "tokens") if isinstance(spec, KVContext) else spec), told


def _textless(spec: Spec) -> Spec:
    """The spec without a text of its own, which such a start does not read."""
    return replace(spec, text="")  # type: ignore[type-var]


def _unread(spec: Spec) -> str:
    return " Its own text is not read." if getattr(spec, "text", "") else ""


def _lost(bench: Bench, taken: int, task: Task | None) -> tuple[str, float]:
    """What rows lose beside a context that takes so many positions and else would not: in words, and as a share of the
    text of all rows; all of it, where not even their template fits."""
    free = [row for part in PLAN_PARTS for row in bench.encoded(part, room=room(bench, 0), task=task)]
    try:
        left = room(bench, taken)
        beside = [row for part in PLAN_PARTS for row in bench.encoded(part, room=left, task=task)]
    except UserError as problem:
        return f"leave no room ({problem})", 1.0
    cut = [one.cut - alone.cut for alone, one in zip(free, beside, strict=True) if one.cut > alone.cut]
    share = sum(cut) / max(1, sum(len(alone.source) for alone in free))
    return (
        f"cut {len(cut):,} row{'s' * (len(cut) > 1)} short, by {100 * share:.1f} % of all text" if cut else ""
    ), share


def _is_open(spec: Any) -> bool:
    return getattr(spec, "shows_rows", False) and spec.init_from is None


def _length(spec: Spec) -> int:
    return int(getattr(spec, str(spec.size)))


def begun(specs: Sequence[Spec], bench: Bench, seed: int, task: Task | None = None) -> tuple[Spec, ...]:
    """The specs; those that begin as demonstrations and have no text of their own get that of rows which fit."""
    return tuple(_begun(spec, bench, seed, task) for spec in specs)


def _begun(spec: Spec, bench: Bench, seed: int, task: Task | None) -> Spec:
    if not spec.shows_rows or getattr(spec, "init_from", "") != DEMOS or getattr(spec, "text", ""):
        return spec
    return replace(spec, text=text(bench, _length(spec), seed, task))  # type: ignore[type-var]


def text(bench: Bench, length: int, seed: int, task: Task | None = None) -> str:
    """Solved rows, drawn by the seed, that together take at least `length` tokens: the last of them are shown.

    task: how they are solved, as of an arm that writes steps; the bench's where it is None. The labels take turns. Rows
    that fit whole stand last; what is left of the length is the end of one more. Rows are drawn from the shortest half
    (quarter, ...) of each label where `ENOUGH` do not fit otherwise.
    """
    random = Random(seed)
    rows = random.sample(range(len(bench.splits.train)), min(POOL, len(bench.splits.train)))
    shown = {row: draw.solved(bench, task or bench.task, (row,)) for row in rows}
    sizes = {row: len(bench.tokenizer(words, add_special_tokens=False)["input_ids"]) for row, words in shown.items()}
    groups = _groups(bench, rows)
    wanted = min(max(ENOUGH, len(groups)), len(rows))
    chosen: list[int] = []
    for part in PARTS:
        chosen = _fitting(_shortest(groups, sizes, part), sizes, length)
        if len(chosen) >= wanted:
            break
    random.shuffle(chosen)
    before = [row for row in rows if row not in chosen] or rows
    cut = max(before[: len(groups)], key=sizes.__getitem__)
    front = [cut] * -(-(length - sum(sizes[row] for row in chosen)) // max(1, sizes[cut]))
    return "".join(shown[row] for row in (*front, *chosen))


def _groups(bench: Bench, rows: Sequence[int]) -> list[list[int]]:
    """The rows by label; all together where there is none."""
    if not bench.task.is_labelled:
        return [list(rows)]
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(labelled(bench.task).label_of(bench.splits.train[row], row), []).append(row)
    return list(groups.values())


def _shortest(groups: Sequence[Sequence[int]], sizes: Mapping[int, int], part: int) -> list[list[int]]:
    """Of each group the shortest rows, one in `part`, in the order in which they were drawn."""
    found = []
    for group in groups:
        kept = set(sorted(group, key=sizes.__getitem__)[: -(-len(group) // part)])
        found.append([row for row in group if row in kept])
    return found


def _fitting(groups: Sequence[Sequence[int]], sizes: Mapping[int, int], length: int) -> list[int]:
    """Rows of the groups in turn, each while it fits into what is left."""
    chosen, left = list[int](), length
    for place in range(max(map(len, groups))):
        for group in groups:
            if place < len(group) and sizes[group[place]] <= left:
                chosen.append(group[place])
                left -= sizes[group[place]]
    return chosen
