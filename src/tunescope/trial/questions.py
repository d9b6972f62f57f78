"""What an arm asks the model: its demonstrations in their order, its rows, and the task that reads the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tunescope.data.row import line_of
from tunescope.errors import UserError
from tunescope.tasks.prompts.chain import THEN, THINK
from tunescope.tasks.task import changed, labelled
from tunescope.trial.demos import draw
from tunescope.trial.demos import per_query as own_demos
from tunescope.trial.demos import spec as demonstrations
from tunescope.trial.demos.order import ordered
from tunescope.trial.demos.spec import Demos, Shown

if TYPE_CHECKING:
    from tunescope.attachment.tuned import Tuned
    from tunescope.tasks.prompts.chain import Chain
    from tunescope.tasks.task import Encoded, Prediction, Rows, Task
    from tunescope.trial.arm import Ready
    from tunescope.trial.bench import Bench


def task_as_asked(task: Task, demos: Demos | None, chain: Chain | None, seed: int = 0, *, taught: bool = False) -> Task:
    """The task as an arm asks it: at once, or with steps; these are sampled by the seed.

    taught: the arm is trained, on steps where it asks for them.
    """
    return changed(task, chain=chain, shown=demos is not None, seed=seed, taught=taught) if chain else task


def asked(arm: Ready, bench: Bench, seed: int = 0) -> Task:
    """The task as this arm asks it."""
    return task_as_asked(bench.task, arm.demos, arm.chain, seed, taught=arm.trained)


def check(chain: Chain, bench: Bench) -> None:
    """UserError where steps cannot be asked for."""
    if not bench.task.reads_steps:
        raise UserError(f"{chain} reads an answer out of written steps, for which the task is --task reasoning.")
    if bench.kind != "decoder":
        raise UserError(f"{chain} goes on from what the model wrote, and this is an {bench.kind}: take a decoder.")


def check_beside(chain: Chain, demos: Demos | None, bench: Bench, *, alone: bool, trained: bool) -> None:
    """UserError where what stands beside the chain leaves a field of it without effect, or it without effect.

    alone: nothing but demonstrations stands there. trained: something there is trained.
    """
    if (demos or trained) and (chain.think, chain.then) != (THINK, THEN):
        why = "behind demonstrations, which show the steps" if demos else "where the steps are trained on"
        raise UserError(f"{chain}: think and then have no effect {why}; drop them.")
    if not (alone or trained):
        raise UserError(
            f"{chain} asks the model as it is, alone or behind demos:k=N, or trains it on steps, as in {chain}+lora; "
            "what stands beside it here trains nothing."
        )
    longest: int = getattr(bench.task, "step_tokens", None) or 0
    if trained and chain.tokens is not None and chain.tokens < longest:
        raise UserError(
            f"{chain}: the steps that are trained on take up to {longest} tokens, so that answers would be cut off. "
            "Leave tokens out, or give at least as many."
        )
    rows, field = bench.splits.train, bench.task.steps
    without = sum(not str(row.get(field) or "").strip() for row in rows) if trained else 0
    if without:
        raise UserError(
            f"{chain} trains on steps, and {without:,} of {len(rows):,} training rows have none in '{field}'. "
            "Fill them in, drop these rows, or leave out cot."
        )


def demos_shown(demos: Demos, chain: Chain | None, bench: Bench, seed: int) -> Shown:
    """The demonstrations of that seed, their order tried out on the frozen model if that is asked for.

    Tried once in a process: the same arm at other learning rates has the same.
    """
    key, kept = (demos, chain, seed), bench.demos.blocks
    if key not in kept:
        rows = draw.drawn(demos, bench, seed)
        kept[key] = (
            _tried(demos, task_as_asked(bench.task, demos, chain, seed), bench, rows, seed)
            if demos.tries
            else Shown(rows)
        )
    return kept[key]


def _tried(demos: Demos, task: Task, bench: Bench, rows: tuple[int, ...], seed: int) -> Shown:
    from tunescope.attachment.attached import attach
    from tunescope.methods.contexts.text import Text
    from tunescope.trial.bench import room

    def answers(order: tuple[int, ...], given: Rows | None) -> Sequence[Prediction]:
        shown = draw.text(bench, task, order)
        words = Text(text=shown)
        with attach(bench.model, words, tokenizer=bench.tokenizer) as tuned:
            left = room(bench, tuned.positions)
            if given is None:
                queries = bench.encoded("dev", behind=shown, room=left, task=task)
            else:
                queries = task.encode(given, bench.tokenizer, model_kind=bench.kind, behind=shown, room=left)
            reader = _calibrated(bench, behind=shown, room=left) if demos.calibrate else task
            return reader.predict(bench.model, queries, bench.tokenizer)

    found = ordered(demos, bench, rows, seed, answers)
    return Shown(found.rows, found.to_json())


def task_of(arm: Ready, bench: Bench, tuned: Tuned, seed: int) -> Task:
    """The task as the arm asks it, with the arm's artifacts attached; with the one prior of one block in front."""
    from tunescope.trial.bench import room

    if not (arm.demos and arm.demos.calibrate) or arm.demos.each:
        return asked(arm, bench, seed)
    return _calibrated(bench, behind=in_front(arm, tuned), room=room(bench, tuned.positions))


def rows_of(arm: Ready, bench: Bench, tuned: Tuned, part: str, seed: int) -> list[Encoded]:
    """The rows of a part as the arm's model reads them; the first draw, where several answer."""
    return sets_of(arm, bench, tuned, part, seed)[0]


def sets_of(arm: Ready, bench: Bench, tuned: Tuned, part: str, seed: int) -> list[list[Encoded]]:
    """The rows of a part behind each of the draws that answer: of most arms there is one."""
    from tunescope.trial.bench import room

    if arm.demos and arm.demos.each:
        return _own(arm, bench, tuned).rows(part, seed)
    task = asked(arm, bench)
    return [bench.encoded(part, behind=in_front(arm, tuned), room=room(bench, tuned.positions), task=task)]


def drawn_rows(arm: Ready, bench: Bench, tuned: Tuned, seed: int) -> Callable[[list[int]], list[Encoded]]:
    """Numbers of training rows -> what the model is trained on; demonstrations of their own are drawn at each call."""
    if arm.demos and arm.demos.each and arm.demos.draws:
        return _own(arm, bench, tuned).drawn_now
    rows = rows_of(arm, bench, tuned, "train", seed)
    return lambda chosen: [rows[index] for index in chosen]


def predictions(
    arm: Ready, bench: Bench, tuned: Tuned, part: str, seed: int, only: Sequence[int] | None = None
) -> Sequence[Prediction]:
    """What the arm answers to the rows of a part; only: to those of these numbers."""
    from tunescope.tasks.answers import ensemble

    task, demos = task_of(arm, bench, tuned, seed), arm.demos
    if demos and demos.each and (demos.sets > 1 or demos.calibrate):
        own = _own(arm, bench, tuned)
        prior = own.priors(part, seed) if demos.calibrate else None
        sets = own.rows(part, seed)
        if only is not None:
            sets, prior = [[one[row] for row in only] for one in sets], None if prior is None else prior[:, list(only)]
        return ensemble.predicted(labelled(task), bench.model, sets, bench.tokenizer, prior)
    rows = rows_of(arm, bench, tuned, part, seed)
    return task.predict(bench.model, rows if only is None else [rows[row] for row in only], bench.tokenizer)


def _own(arm: Ready, bench: Bench, tuned: Tuned) -> own_demos.QueryDemos:
    assert arm.demos is not None
    task = asked(arm, bench)
    return own_demos.QueryDemos(arm.demos, bench, task, tuned.positions, in_front(arm, tuned))


def in_front(arm: Ready, tuned: Tuned) -> str | None:
    """The text that stands in front of the rows; "" where other positions part it from them, None without one."""
    from tunescope.methods.artifact import TokenContext
    from tunescope.methods.contexts.anchors import Anchors
    from tunescope.methods.contexts.text import Text

    specs = [one.spec for one in tuned.artifacts if isinstance(one.spec, TokenContext | Anchors)]
    if any(isinstance(spec, Text | Anchors) for spec in specs):
        return specs[-1].text if isinstance(specs[-1], Text | Anchors) else ""
    return "" if arm.demos is not None and not arm.demos.each else None


def demo_facts(arm: Ready, bench: Bench, seed: int, task: Task) -> dict[str, Any] | None:
    """What a result keeps of the demonstrations: their lines in the order shown, orders tried, and the prior."""
    if arm.demos is None:
        return None
    if arm.demos.each:
        demos, times = arm.demos, own_demos.passes(arm.demos)
        of = "each label's rows" if bench.task.is_labelled else "the training rows"
        drawn = {"choose": demos.choose, "of": of, "sets": demos.sets, "passes": times, "trained": arm.trained}
        return {"each": True, "count": demonstrations.count(demos, bench.task)} | drawn
    found = demos_shown(arm.demos, arm.chain, bench, seed)
    lines = [line_of(bench.splits.train[index], index) for index in found.rows]
    prior = dict(labelled(task).prior) if arm.demos.calibrate else None
    return {"each": False, "count": len(lines), "lines": lines, "orders": found.orders, "prior": prior}


def _calibrated(bench: Bench, *, behind: str | None, room: int | None) -> Task:
    from tunescope.tasks.answers.calibration import calibrated

    return calibrated(
        labelled(bench.task), bench.model, bench.tokenizer, model_kind=bench.kind, behind=behind, room=room
    )
