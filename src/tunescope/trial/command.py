"""The command that asks a plan again, to be stored or to be typed here; made from the fields that have options."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.models.load import model_name
from tunescope.system import shell
from tunescope.system.option import options_of
from tunescope.tasks.make import USUAL, kind_of
from tunescope.trial.plan import BEYOND, DEV_SHARE, MAX_SEEDS, SEEDS, Plan, Whole
from tunescope.trial.train.settings import Settings


def command(plan: Plan, here: bool = False) -> str:
    """The command that asks the same, with file names but no folders: results are shared, paths are private.
    An arm that names a folder is called by it, and keeps it.

    here: for who sits at this machine: paths as they were given, and of the options those that are not the default.
    """
    asked = plan if plan.pilot_of is None else _whole(plan, plan.pilot_of)
    words = [*_command_words(asked, here), *([] if plan.pilot_of is None else ["--pilot"])]
    unsaid = [f"seeds=[{asked.seeds[0]}]"] if len(asked.seeds) == 1 and asked.seeds[0] != 0 else []
    unsaid += [f'day="{asked.day}"'] if asked.day else []  # the command line has no word for either
    line = shell.join(words) if here else shlex.join(words)  # a report reads its words from the one that is stored
    return line + (f"  # in Python: {', '.join(unsaid)}" if unsaid else "")


def _whole(plan: Plan, whole: Whole) -> Plan:
    """What a pilot stands for."""
    settings = replace(plan.settings, steps=whole.steps, eval_every=whole.eval_every, patience=whole.patience)
    asked = replace(plan, seeds=whole.seeds, trials=whole.trials, rates=whole.rates, settings=settings)
    return replace(asked, pilot_of=None, trial_steps=None, max_seeds=whole.max_seeds)


def _command_words(plan: Plan, here: bool) -> list[str]:
    model = _from_here(plan.model) if here else model_name(plan.model)
    words = ["tunescope", "compare", shell.no_option(model), _called(plan.data["train"], here)]
    for part in ("dev", "test"):
        words += [f"--{part}", _called(plan.data[part], here)] if part in plan.data else []
    words += _task_words(plan.task, here)
    typed: dict[str, Any] = {"seeds": _typed_seeds(plan.seeds), "beyond": plan.past}
    typed |= {"forgetting": plan.forgetting if here else Path(plan.forgetting).name}
    typed |= {"dev_share": {DEV_SHARE: "", None: 1}.get(plan.dev_share, plan.dev_share)}
    typed |= {"trials": ()} if plan.rates else {}  # rates stand for trials
    usual = Settings(steps=plan.settings.steps)
    auto: dict[str, Any] = {"eval_every": ()} if plan.settings.eval_every == usual.eval_every else {}
    auto |= {"batch_size": "auto"} if plan.halve_batches and plan.settings.batch_size == usual.batch_size else {}
    if here:
        typed |= _unsaid(plan)
    for kind, values in ((Plan, typed), (Settings, auto)):
        words += _field_words(kind, plan if kind is Plan else plan.settings, values, here)
    return words


def _called(path: str, here: bool) -> str:
    return shell.no_option(_from_here(path) if here else shown(path))


def _from_here(path: str) -> str:
    """As short as it can be typed in this folder."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _unsaid(plan: Plan) -> dict[str, Any]:
    """Fields that have the value of a command which does not name them."""
    seeds = plan.seeds == SEEDS and plan.max_seeds == MAX_SEEDS
    found: dict[str, Any] = dict.fromkeys(("seeds", "max_seeds"), ()) if seeds else {}
    return found | ({"beyond": ()} if plan.beyond in (None, BEYOND) else {})


def _field_words(kind: type, asked: object, typed: Mapping[str, Any], here: bool) -> Iterator[str]:
    """The options of a dataclass, where they are not at their defaults. typed: field -> what stands for its value.

    here: also the "always" ones need a value of their own, and "never" is as ever.
    """
    for one in options_of(kind):
        value, when = getattr(asked, one.field), one.option.command
        said = typed.get(one.field, value) if here else value
        if (when == "always" and not here) or (when != "never" and said != one.default):
            yield from one.words(typed.get(one.field, value))


def _task_words(task: Mapping[str, Any], here: bool) -> Iterator[str]:
    """The kind and all fields that the plan names, the template last."""
    kind = str(task.get("kind", USUAL))
    yield from () if here and kind == USUAL else ("--task", kind)
    for one in sorted(options_of(kind_of(kind)), key=lambda one: one.field == "template"):
        yield from one.words(task.get(one.field), task.get(one.option.rest) or ())


def _typed_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    counted = len(seeds) == 1 or list(seeds) == list(range(len(seeds)))
    return (len(seeds),) if counted else tuple(seeds)
