"""A pretrained world adapted to a lesson, the learning rate chosen by short trials on the development rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from tunescope.attachment.attached import attach
from tunescope.lab.worlds.lessons import Lesson, exact, problem
from tunescope.methods.text_form import parse
from tunescope.trial.train.loop import Diverged, train
from tunescope.trial.train.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class Course:
    """How an arm is trained: each of `rates` for `trial` steps, then the best anew for all steps of `settings`.

    With one rate there is no trial. Rates are those of the arm's methods alike.
    """

    rates: tuple[float, ...]
    settings: Settings
    trial: int = 0


def adapted(
    model: PreTrainedModel, arm: str, given: Lesson, tests: dict[str, torch.Tensor], course: Course, seed: int
) -> Any:
    """What came of it: {"exact": {test: share of whole answers right}, "rate", "steps", "curve", "trials", "trained"}.

    arm: as on the command line, "inputs:length=12" or "inputs+lora:rank=1". The model is left as it was.
    """
    trials = {}
    rate = course.rates[0]
    if len(course.rates) > 1:
        short = replace(course.settings, steps=course.trial)
        trials = {rate: _run(model, arm, given, {}, rate, short, seed)["dev"] for rate in course.rates}
        rate = max(trials, key=lambda rate: trials[rate])  # the first of equals: rates ascend
    found = _run(model, arm, given, tests, rate, course.settings, seed)
    return found | {"rate": rate, "trials": {f"{rate:g}": score for rate, score in trials.items()}}


def unadapted(model: PreTrainedModel, answer: int, tests: dict[str, torch.Tensor]) -> Any:
    """The same of the frozen model, as it is."""
    scores = {name: exact(model, ids, answer) for name, ids in tests.items()}
    return {"exact": {name: sum(each) / len(each) for name, each in scores.items()}}


def _run(
    model: PreTrainedModel,
    arm: str,
    given: Lesson,
    tests: dict[str, torch.Tensor],
    rate: float,
    settings: Settings,
    seed: int,
) -> dict[str, Any]:
    with attach(model, *parse(arm), seed=seed) as tuned:
        tuned.train()
        parameters = tuned.named_parameters()
        try:
            state = train(problem(model, parameters, rate, given), settings, seed)
        except Diverged as problem_found:
            return {"dev": -1.0, "exact": dict.fromkeys(tests, 0.0), "diverged": str(problem_found)}
        tuned.eval()
        scores = {name: exact(model, ids, given.answer) for name, ids in tests.items()}
    return {
        "dev": state.best_score,
        "exact": {name: sum(each) / len(each) for name, each in scores.items()},
        "steps": state.step,
        "curve": state.curve,
        "trained": sum(value.numel() for value in parameters.values()),
        "settings": asdict(settings),
    }
