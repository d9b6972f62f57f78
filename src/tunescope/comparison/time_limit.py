"""A comparison with `--minutes`: timed, cut to fit, and begun so that it is over in time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tunescope.attachment.share import as_first
from tunescope.comparison import arms, estimate
from tunescope.comparison.costs import Costs
from tunescope.comparison.deadline import Deadline
from tunescope.comparison.execution import Execution
from tunescope.comparison.interim_looks import Clock
from tunescope.comparison.run import is_known
from tunescope.comparison.time_cuts import Time, fitted, reserve
from tunescope.errors import UserError
from tunescope.system import machine, run_folder
from tunescope.system.say import say
from tunescope.trial import executor_name
from tunescope.trial.bench import Bench
from tunescope.trial.plan import AFTERWARDS, Plan
from tunescope.trial.plan_json import from_json, to_json


def before(question: Plan, folder: Path) -> tuple[Plan, bool]:
    """What the folder's comparison was cut to, if it asks the same; and whether the question is to be over in time.

    Rates are tried apart only where they were when it was begun. What is forgotten is measured on a text that is named
    once it is finished; before, as it was cut to.

    Raises UserError for a pilot with minutes.
    """
    path = folder / "config.json"
    if not path.exists():
        if question.minutes is not None and question.pilot_of is not None:
            raise UserError(
                "--minutes and --pilot make a comparison shorter, each by a rule of its own: leave one out."
            )
        return question, question.minutes is not None
    kept = run_folder.read_config(folder)
    question = replace(question, apart=bool(kept.get("apart")))
    fit = kept.get("fit")
    if isinstance(fit, dict) and (question.fit is not None or fit.get("question") == digest(question)):
        known = {name: getattr(question, name) for name in AFTERWARDS}
        if not (question.forgetting and (folder / "results.json").exists()):
            known["forgetting"] = kept.get("forgetting", "")
        question = replace(from_json(kept, path), model=question.model, data=question.data, day=question.day, **known)
    return question, question.minutes is not None and question.fit is not None


def say_uncut(question: Plan, folder: Path, fits: bool, quiet: bool) -> None:
    """That minutes cut nothing of a comparison that was begun without, where there is more of it to run."""
    if question.minutes is None or fits or quiet or (folder / "results.json").exists():
        return
    say(
        f"note: --minutes {question.minutes:g} cuts nothing here: the comparison in {folder} was begun without it and "
        "goes on as it was begun. Only seeds that looks add (--max-seeds) are held to it."
    )


def digest(question: Plan) -> str:
    """Of what was asked before anything was cut."""
    left_out = (*AFTERWARDS, "fit", "apart", "day", "chosen_precision", "model", "data")
    return run_folder.identity({name: value for name, value in to_json(question).items() if name not in left_out})


def with_deadline(bench: Bench, execution: Execution, start: float, fits: bool) -> tuple[Deadline, Clock]:
    """When all of it is to be over; where it is to fit, it is timed, and the bench's plan cut if it was not before.

    Raises:
        UserError: it does not fit, or is to run on other machines, which cannot be timed from here.
    """
    question, workers = bench.plan, max(1, execution.workers)
    if not fits or question.minutes is None:
        return Deadline(question), Clock(start, workers)
    if execution.executor.is_remote:
        raise UserError(
            f"--minutes times this machine, and --executor {executor_name.show(execution.executor)} runs on others; "
            "leave it out, or type: --executor local"
        )
    opened = time.monotonic() - start
    costs = timed(bench, execution.quiet)
    spent = time.monotonic() - start + (opened if workers > 1 else 0.0)  # each worker opens it too
    costs, spent = as_first(bench.model, (costs, spent))
    kept = reserve(question.minutes)
    if question.fit is None:
        bench.cut_to(cut(bench, costs, Time(60 * question.minutes - kept - spent, workers, spent)))
        say_minutes(bench.plan, execution.quiet)
    agreed = partial(as_first, bench.model)
    end = start + 60 * question.minutes - kept
    deadline = Deadline(
        bench.plan, end, workers, costs, estimate.sizes_of(bench), agreed, partial(is_known, bench, execution.folder)
    )
    return deadline, Clock(start, workers, kept)


def timed(bench: Bench, quiet: bool = False) -> dict[str, Costs]:
    """Arm -> its seconds; of one that is refused none."""
    found = estimate.estimates(bench, lambda name: None if quiet else say(f"timing {name}"))
    if not quiet and (busy := machine.busy()):
        say(f"note: {busy}")
    return {one.arm: one.costs or Costs(one.arm) for one in found}


def cut(bench: Bench, costs: Mapping[str, Costs], time_left: Time) -> Plan:
    """The plan as it fits; its own `fit` says what was cut, and of which question."""
    plan = bench.plan
    found = fitted(plan, typed(bench, costs), estimate.sizes_of(bench), time_left)
    assert found.fit is not None
    return replace(found, fit=replace(found.fit, question=digest(plan)))


def typed(bench: Bench, costs: Mapping[str, Costs]) -> dict[str, Sequence[Costs]]:
    """Each arm as typed, with the costs of what it stands for."""
    budgets, kind = bench.plan.budgets, bench.kind
    names = {text: [one.name for one in arms.listed((text,), budgets, kind)] for text in arms.typed(bench)}
    return {text: [costs[name] for name in own] for text, own in names.items()}


def say_minutes(plan: Plan, quiet: bool) -> None:
    if plan.fit is not None and not quiet:
        say(f"its runs are expected to take {plan.fit.seconds / 60:.1f} minutes, all of it less than {plan.minutes:g}")
