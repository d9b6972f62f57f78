"""What an arm asks the model: its demonstrations in their order, its rows, and the task that reads the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tunescope.comparing import demos as demonstrations
from tunescope.comparing.demos import Demos

if TYPE_CHECKING:
    from tunescope.comparing.arms import Ready
    from tunescope.comparing.bench import Bench


@dataclass(frozen=True)
class Shown:
    """Training rows in the order in which they stand in front, and what trying orders has found."""

    rows: tuple[int, ...]
    orders: dict[str, Any] | None = None


def shown(demos: Demos, bench: Bench, seed: int) -> Shown:
    """The demonstrations of that seed, their order tried out on the frozen model if that is asked for.

    Tried once in a process: the same arm at other learning rates has the same.
    """
    key = f"{demos} {seed}"
    if key not in bench.shown:
        rows = demonstrations.drawn(demos, bench, seed)
        bench.shown[key] = _tried(demos, bench, rows, seed) if demos.tries else Shown(rows)
    found: Shown = bench.shown[key]
    return found


def _tried(demos: Demos, bench: Bench, rows: tuple[int, ...], seed: int) -> Shown:
    import tunescope as ts
    from tunescope.comparing.bench import room
    from tunescope.comparing.ordering import ordered

    def answers(order: tuple[int, ...], asked: Sequence[Any] | None) -> Any:
        words = ts.Text(text=demonstrations.text(bench, bench.task, order))
        with ts.attach(bench.model, words, tokenizer=bench.tokenizer) as tuned:
            left = room(bench, tuned.positions)
            if asked is None:
                queries = bench.encoded("dev", bos=False, room=left)
            else:
                queries = bench.task.encode(asked, bench.tokenizer, model_kind=bench.kind, bos=False, room=left)
            task = _calibrated(bench, bos=False, room=left) if demos.calibrate else bench.task
            return task.predict(bench.model, queries, bench.tokenizer)

    found = ordered(demos, bench, rows, seed, answers)
    return Shown(found.rows, found.to_json())


def task_of(arm: Ready, bench: Bench, tuned: Any) -> Any:
    """The task as the arm asks it, with the arm's artifacts attached."""
    from tunescope.comparing.bench import room

    if not (arm.demos and arm.demos.calibrate):
        return bench.task
    return _calibrated(bench, bos=not begun(arm, tuned), room=room(bench, tuned.positions))


def rows_of(arm: Ready, bench: Bench, tuned: Any, part: str) -> list[Any]:
    """The rows of a part as the arm's model reads them."""
    from tunescope.comparing.bench import room

    if arm.demos and arm.demos.each:
        return demonstrations.own_prompts(arm.demos, bench, part)
    return bench.encoded(part, bos=not begun(arm, tuned), room=room(bench, tuned.positions))


def begun(arm: Ready, tuned: Any) -> bool:
    """Whether a text in front has begun the sequence already."""
    from tunescope.contexts.anchors import Anchors
    from tunescope.contexts.text import Text

    return arm.demos is not None or any(isinstance(one.spec, Text | Anchors) for one in tuned.artifacts)


def told(arm: Ready, bench: Bench, seed: int, task: Any) -> dict[str, Any] | None:
    """What a result keeps of the demonstrations: their lines in the order shown, orders tried, and the prior."""
    from tunescope.tasks.reading import line_of

    if arm.demos is None:
        return None
    if arm.demos.each:
        return {"each": True, "count": demonstrations.count(arm.demos, bench.task)}
    found = shown(arm.demos, bench, seed)
    lines = [line_of(bench.splits.train[index], index) for index in found.rows]
    prior = dict(task.prior) if arm.demos.calibrate else None
    return {"each": False, "count": len(lines), "lines": lines, "orders": found.orders, "prior": prior}


def _calibrated(bench: Bench, *, bos: bool, room: int | None) -> Any:
    from tunescope.tasks.calibrating import calibrated

    return calibrated(bench.task, bench.model, bench.tokenizer, model_kind=bench.kind, bos=bos, room=room)
