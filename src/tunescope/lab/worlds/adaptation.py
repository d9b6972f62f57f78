"""A pretrained world adapted to a lesson, the learning rate chosen by short trials on the development rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tunescope.attachment.attached import attach
from tunescope.lab.worlds.lessons import Lesson, exact, problem
from tunescope.methods.text_form import parse
from tunescope.system import files
from tunescope.trial.train.loop import Diverged, Saving, train
from tunescope.trial.train.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


APART = 0.05  # of shares of right answers
SAVE_EVERY = 60.0  # seconds between two states of a run
DIVERGED = -1.0  # in the place of one


@dataclass(frozen=True, kw_only=True)
class Course:
    """How an arm is trained: each of `rates` for `trial` steps, then the best anew for all steps of `settings`.

    With one rate there is no trial. Rates are those of the arm's methods alike. While the trials' scores lie within
    `APART` of each other, and not all that near to 1, none has left the plateau where it began: they are run again,
    twice as long, up to `longest` steps.
    """

    rates: tuple[float, ...]
    settings: Settings
    trial: int = 0
    longest: int = 0


def adapted(
    model: PreTrainedModel,
    arm: str,
    given: Lesson,
    tests: dict[str, torch.Tensor],
    course: Course,
    seed: int,
    folder: Path | None = None,
) -> Any:
    """What came of it: {"exact": {test: share of whole answers right}, "rate", "steps", "curve", "trials", "trained"}.

    arm: as on the command line, "inputs:length=12" or "inputs+lora:rank=1". The model is left as it was. folder: where
    trials that are done lie, and the state of a run that is not: what was stopped goes on from there, to the same bits
    on a CPU.
    """

    def run(name: str, rate: float, settings: Settings, tests: dict[str, torch.Tensor]) -> dict[str, Any]:
        return _kept(folder, name, lambda saving: _run(model, arm, given, tests, rate, settings, seed, saving))

    rate, trials, steps = course.rates[0], dict[float, float](), course.trial
    while len(course.rates) > 1:
        short = replace(course.settings, steps=steps)
        trials = {rate: run(f"trial-{rate}-{steps}", rate, short, {})["dev"] for rate in course.rates}
        rate = max(trials, key=lambda rate: trials[rate])  # the first of equals: rates ascend
        if _are_apart(list(trials.values())) or 2 * steps > course.longest:
            break
        steps *= 2
    found = run("run", rate, course.settings, tests)
    told = {"trials": {f"{rate:g}": score for rate, score in trials.items()}} | (
        {"trial_steps": steps} if trials else {}
    )
    return found | {"rate": rate} | told


def _kept(folder: Path | None, name: str, run: Callable[[Saving | None], dict[str, Any]]) -> dict[str, Any]:
    """What came of a run, from the folder where it is done; its state lies there until then."""
    if folder is None:
        return run(None)
    done, state = folder / f"{name}.json", folder / name
    if not done.exists():
        files.make_folder(state)
        files.put_json(done, run(Saving(state, SAVE_EVERY)))
        files.remove(state)
    return files.read_json(done)


def _are_apart(scores: list[float]) -> bool:
    """Whether shares of right answers tell rates apart, or all are as good as perfect; diverged ones aside."""
    scores = [score for score in scores if score != DIVERGED] or [1.0]
    return max(scores) - min(scores) >= APART or min(scores) >= 1 - APART


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
    saving: Saving | None = None,
) -> dict[str, Any]:
    with attach(model, *parse(arm), seed=seed) as tuned:
        tuned.train()
        parameters = tuned.named_parameters()
        trained = sum(value.numel() for value in parameters.values())
        try:
            state = train(problem(model, parameters, rate, given), settings, seed, saving=saving)
        except Diverged as problem_found:
            nothing = dict.fromkeys(tests, 0.0)
            return {"dev": DIVERGED, "exact": nothing, "diverged": str(problem_found), "trained": trained}
        tuned.eval()
        scores = {name: exact(model, ids, given.answer) for name, ids in tests.items()}
    return {
        "dev": state.best_score,
        "exact": {name: sum(each) / len(each) for name, each in scores.items()},
        "steps": state.step,
        "curve": state.curve,
        "trained": trained,
        "settings": asdict(settings),
    }
