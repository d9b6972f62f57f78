"""How long and at which rates a recipe trains: two protocols, never mixed.

paper: the published steps and the one published rate, constant, batches of 64, no early stop; AdamW with torch's
betas (theirs .9, .95), weight decay as published (0.1 in pretraining and full tuning, 0.01 of what is attached; on
every tensor, theirs on matrices alone), dropout 0.1 in pretraining. Kept is the best of twenty scores on rows of its
own, where they kept the last; rows are 131,072, seen again and again, where theirs were drawn anew without end.
tuned: ours. Rates tried by short trials, cosine to zero, stop when the development score has not risen for `PATIENCE`
evaluations, no weight decay, no dropout.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tunescope.lab.worlds.adaptation import APART, Course
from tunescope.lab.worlds.lessons import Unnamed
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.world import World
from tunescope.lab.worlds.world_cache import Pretraining
from tunescope.trial.train.settings import Settings as Training

PATIENCE, EVALUATIONS = 8, 20


@dataclass(frozen=True)
class Plan:
    """Steps of the run, learning rates to try, steps of a trial, rows of a batch, and what the products are made in.

    longest: steps of a trial that is run again because none of the rates had left the plateau (see `Course`).

    Under "bfloat16" parameters, losses and scores stay in float32 (torch's autocast); it is for sizes where float32
    would take hours on a CPU.
    """

    steps: int
    rates: tuple[float, ...]
    trial: int = 0
    batch_size: int = 64
    precision: str = "float32"
    longest: int = 0

    def to_json(self, quick: bool = False) -> dict[str, Any]:
        """As a recipe keeps it; the quick size has half the rows, two thirds of the steps, and float32."""
        small = replace(self, batch_size=self.batch_size // 2, steps=2 * self.steps // 3, precision="float32")
        plan = small if quick else self
        return asdict(plan) | {"rates": list(plan.rates)}


def course(settings: dict[str, Any], arm: str) -> Course:
    """What `adapted` wants, for an arm of a recipe's settings."""
    plan = settings["plans"][arm]
    trials = {"trial": plan["trial"], "longest": plan["longest"]}
    training = _training(settings, plan, decay=0.1 if arm == "full" else 0.01)
    return Course(rates=tuple(plan["rates"]), settings=training, **trials)


def notes(settings: dict[str, Any], theirs: str = "", outcomes: Iterable[Mapping[str, Any]] = ()) -> list[str]:
    """What a reader of a recipe's table should know of how it was computed.

    theirs: the paper's steps, in words. outcomes: those that `adapted` gave.
    """
    plans, found = settings["plans"], diverged(outcomes)
    if theirs and settings["protocol"] == "tuned":
        ours = ", ".join(f"{arm} {plan['steps']:,} of {plan['batch_size']}" for arm, plan in plans.items())
        found.append(
            f"Steps at most (a run ends when {PATIENCE} scores in a row are no better) and rows of each, ours: {ours}; "
            f"theirs: {theirs}. Where the scores differ, this and the rates "
            "tried are the likely cause."
        )
    if longest := max(plan["longest"] for plan in plans.values()):
        first = min(plan["trial"] for plan in plans.values() if plan["longest"])
        found.append(
            f"A rate is chosen by trials of {first:,} steps, run again twice as long, up to {longest:,}, while their "
            f"scores lie within {APART} of each other: on the plateau where all begin they say nothing of a rate."
        )
    if any(plan["precision"] != "float32" for plan in plans.values()):
        found.append("Matrix products of training in bfloat16; parameters, losses and scores in float32.")
    return found


def diverged(outcomes: Iterable[Mapping[str, Any]]) -> list[str]:
    """That runs did, if any."""
    why = [outcome["diverged"] for outcome in outcomes if "diverged" in outcome]
    return [f"{len(why)} of the runs diverged, and count as 0: {why[0]}"] if why else []


def pretraining(
    settings: dict[str, Any], skills: tuple[str, ...], shape: Shape, seed: int, world: World
) -> Pretraining[Unnamed]:
    """The pretraining of a recipe's settings; dropout is the protocol's."""
    plan = settings["plans"]["pretraining"]
    shape = replace(shape, dropout=0.1 if settings["protocol"] == "paper" else 0.0)
    training = _training(settings, plan, decay=0.1)
    return Pretraining(Unnamed(skills, world), shape, training, plan["rates"][0], seed)


def _training(settings: dict[str, Any], plan: dict[str, Any], decay: float) -> Training:
    steps, batch_size = plan["steps"], plan["batch_size"]
    if settings["protocol"] == "paper":
        return Training(
            steps=steps,
            batch_size=batch_size,
            precision=plan["precision"],
            schedule="constant",
            warmup=0.0,
            weight_decay=decay,
            eval_every=max(1, steps // EVALUATIONS),
            patience=steps,
        )
    every = max(25, steps // EVALUATIONS)
    return Training(
        steps=steps,
        batch_size=batch_size,
        precision=plan["precision"],
        schedule="cosine",
        eval_every=every,
        patience=PATIENCE,
    )
