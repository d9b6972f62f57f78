"""The command that asks a plan again, with names of files and no folders; made from the fields that have options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.models.load import model_name
from tunescope.system.option import options_of
from tunescope.tasks.make import USUAL, kind_of
from tunescope.trial.plan import DEV_SHARE, Plan, Whole
from tunescope.trial.train.settings import Settings


def command(plan: Plan) -> str:
    """The command that asks the same, with file names but no folders: results are shared, paths are private."""
    import shlex

    asked = plan if plan.pilot_of is None else _whole(plan, plan.pilot_of)
    words = [*_command_words(asked), *([] if plan.pilot_of is None else ["--pilot"])]
    one = len(asked.seeds) == 1 and asked.seeds[0] != 0  # for which the command line has no word
    return shlex.join(words) + (f"  # in Python: seeds=[{asked.seeds[0]}]" if one else "")


def _whole(plan: Plan, whole: Whole) -> Plan:
    """What a pilot stands for."""
    settings = replace(plan.settings, steps=whole.steps, eval_every=whole.eval_every, patience=whole.patience)
    asked = replace(plan, seeds=whole.seeds, trials=whole.trials, rates=whole.rates, settings=settings)
    return replace(asked, pilot_of=None, trial_steps=None)


def _command_words(plan: Plan) -> list[str]:
    words = ["tunescope", "compare", model_name(plan.model), shown(plan.data["train"])]
    for part in ("dev", "test"):
        words += [f"--{part}", shown(plan.data[part])] if part in plan.data else []
    words += _task_words(plan.task)
    typed: dict[str, Any] = {"seeds": _typed_seeds(plan.seeds), "beyond": plan.past}
    typed |= {"forgetting": Path(plan.forgetting).name}
    typed |= {"dev_share": {DEV_SHARE: "", None: 1}.get(plan.dev_share, plan.dev_share)}
    typed |= {"trials": ()} if plan.rates else {}  # rates stand for trials
    auto = {"batch_size": "auto"} if plan.halve_batches and plan.settings.batch_size == Settings().batch_size else {}
    return [*words, *_field_words(Plan, plan, typed), *_field_words(Settings, plan.settings, auto)]


def _field_words(kind: type, asked: Any, typed: Mapping[str, Any]) -> Iterator[str]:
    """The options of a dataclass, where they are not at their defaults. typed: field -> what stands for its value."""
    for one in options_of(kind):
        value, when = getattr(asked, one.field), one.option.command
        if when == "always" or (when == "changed" and value != one.default):
            yield from one.words(typed.get(one.field, value))


def _task_words(task: Mapping[str, Any]) -> Iterator[str]:
    """The kind and all fields that the plan names, the template last."""
    kind = str(task.get("kind", USUAL))
    yield from ("--task", kind)
    for one in sorted(options_of(kind_of(kind)), key=lambda one: one.field == "template"):
        yield from one.words(task.get(one.field) or None, task.get(one.option.rest) or ())


def _typed_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    counted = len(seeds) == 1 or list(seeds) == list(range(len(seeds)))
    return (len(seeds),) if counted else tuple(seeds)
