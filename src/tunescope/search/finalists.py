"""Which candidate a search comes to: the best on the development rows as the model is, or of a few after tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.search.search import Found, Point, Say

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench


@dataclass(frozen=True)
class Candidate:
    """A template and label words, how they are shown, and their score on the development rows as the model is."""

    template: str
    words: Mapping[str, str]
    shown: str
    dev: float


def settled(candidates: Sequence[Candidate], passes: int, trace: Sequence[Point]) -> Found:
    """The best candidate, of equals the first, with the passes taken and what was tried."""
    best = max(candidates, key=lambda one: one.dev)
    return Found("", best.template, dict(best.words), best.dev, passes, tuple(trace))


def settled_by_tuning(
    bench: Bench, candidates: Sequence[Candidate], before: Found, tuning: Tuning, seed: int, say: Say
) -> Found:
    """The finalist that is best on the development rows after full tuning, of equals the one that was better before.

    `dev` is the score after tuning; of the tuned models nothing is kept. The finalists are the best candidates as the
    model is, of equals the first. before: what they were found with.

    Raises:
        UserError: every finalist diverged.
    """
    from tunescope.search.apply import with_found

    finalists = sorted(candidates, key=lambda one: -one.dev)[: tuning.finalists]  # stable
    passes, points, best = before.passes, list(before.trace), None
    for one in finalists:
        own = with_found(bench, Found("", one.template, one.words, one.dev, 0))
        dev, taken = tuned_score(own, tuning.steps, seed)
        passes += taken
        if dev is None:
            say(f"{one.shown}: diverged in tuning")
            continue
        say(f"{one.shown}: {one.dev:.3f} on dev as the model is, {dev:.3f} after {tuning.steps} steps")
        points.append(Point(passes, f"{one.shown} (tuned)", dev))
        if best is None or dev > best[0]:
            best = dev, one
    if best is None:
        raise UserError(f"{tuning.name}: all {len(finalists)} finalists diverged in tuning; take a smaller tune.")
    dev, one = best
    counts = {f"finalists tuned for {tuning.steps} steps each; dev is after tuning, test without": len(finalists)}
    return Found("", one.template, dict(one.words), dev, passes, tuple(points), counts)


FINALISTS = 5


@dataclass(frozen=True)
class Tuning:
    """Full tuning of each of `finalists` candidates for at most `steps` steps; name: of the search that asks for it."""

    name: str
    steps: int
    finalists: int

    def cost(self, bench: Bench) -> int:
        """Passes that it takes at most: three a row trained on, and one a development row at each look."""
        from tunescope.search.objective import GRADIENT

        settings = bench.plan.settings
        looks = -(-self.steps // settings.eval_every)
        return self.finalists * (GRADIENT * self.steps * settings.batch_size + looks * len(bench.splits.dev))

    def left(self, bench: Bench, passes: int, least: int) -> int:
        """The passes that stay for looking for candidates; UserError where they are fewer than `least`."""
        cost, size = self.cost(bench), bench.plan.settings.batch_size
        if passes < cost + least:
            raise UserError(
                f"{self.name}: tuning {self.finalists} finalists for {self.steps} steps of {size} rows takes {cost} "
                f"passes, and looking for them at least {least}: {passes} passes are too few. Give {cost + least} or "
                "more, or a smaller tune or finalists."
            )
        return passes - cost


def tuning_of(name: str, tune: int, finalists: int | None, most: tuple[str, int]) -> Tuning | None:
    """What the fields of a search come to; None for tune=0. most: the field that says how many candidates there are.

    Raises:
        UserError: a number that is too small, or finalists that nothing is done with.
    """
    if tune < 0 or (finalists is not None and finalists < 1):
        raise UserError(f"{name}: tune is a number of steps and finalists 1 or more; type {name}:tune=100,finalists=5")
    if finalists is not None and not tune:
        raise UserError(f"{name}:finalists={finalists} is how many candidates are tuned; add tune=100, or drop it.")
    field, count = most
    if finalists is not None and finalists > count:
        raise UserError(
            f"{name}:finalists={finalists} is more than the {count} candidates of {field}={count}; raise that."
        )
    return Tuning(name, tune, finalists or min(FINALISTS, count)) if tune else None


def tuned_score(bench: Bench, steps: int, seed: int) -> tuple[float | None, int]:
    """The best development score in full tuning of a bench's model, None where it diverged; and the passes taken.

    By the plan's settings, at the smallest of the plan's learning rates, which loses the fewest, or where it has none
    at the middle of full tuning's own; the model is left as it was.
    """
    from tunescope.attachment.attached import attach
    from tunescope.data import scores
    from tunescope.methods.deltas.full import Full
    from tunescope.search.objective import GRADIENT
    from tunescope.trial.bench import room
    from tunescope.trial.train.loop import Diverged, Problem, train

    task, model, tokenizer, taken = bench.task, bench.model, bench.tokenizer, 0
    rows, dev = (bench.encoded(part, room=room(bench, 0)) for part in ("train", "dev"))
    own = sorted(Full.learning_rates)
    rate = min(bench.plan.rates, default=own[len(own) // 2])

    def loss(chosen: list[int]) -> Any:
        nonlocal taken
        taken += GRADIENT * len(chosen)
        return task.loss(model, [rows[index] for index in chosen], tokenizer)

    def score() -> float:
        nonlocal taken
        taken += len(dev)
        stats = [one.stats for one in task.predict(model, dev, tokenizer)]
        return scores.aggregate(task.metric, stats)[task.metric]

    with attach(model, Full(), tokenizer=tokenizer, seed=seed) as tuned:
        parameters = dict(tuned.train().named_parameters())
        problem = Problem(
            parameters=parameters,
            rates=dict.fromkeys(parameters, rate),
            loss=loss,
            score=score,
            lengths=[len(row.input_ids) + len(row.target_ids) for row in rows],
            labelled=[max(1, len(row.target_ids)) for row in rows],
        )
        try:
            return train(problem, replace(bench.plan.settings, steps=steps), seed).best_score, taken
        except Diverged:
            return None, taken
