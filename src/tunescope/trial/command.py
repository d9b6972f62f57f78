"""The command that asks a plan again, with names of files and no folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.models.load import model_name
from tunescope.trial.plan import Plan, Whole
from tunescope.trial.train.loop import Settings

TASK_OPTIONS = {  # a task's field -> the option that sets it
    "text": "--text-field",
    "label": "--label-field",
    "words": "--words",
    "by": "--by",
    "input": "--input-field",
    "target": "--target-field",
    "steps": "--steps-field",
    "lead": "--lead",
    "read": "--read",
    "metric": "--metric",
    "also": "--metric",
    "lowercase": "--lowercase",
    "max_new_tokens": "--max-new-tokens",
    "beams": "--beams",
    "length_penalty": "--length-penalty",
    "min_new_tokens": "--min-new-tokens",
    "no_repeat_ngram": "--no-repeat-ngram",
    "label_smoothing": "--label-smoothing",
    "z_loss": "--z-loss",
    "source_language": "--source-language",
    "target_language": "--target-language",
    "template": "--template",
}


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
    words += ["--arms", *plan.arms] if plan.arms else []
    words += ["--budget", *map(str, plan.budgets)] if plan.budgets else []
    words += ["--lr", *(f"{rate:g}" for rate in plan.rates)] if plan.rates else ["--trials", str(plan.trials)]
    words += ["--seeds", *_seed_words(plan.seeds)]
    words += ["--halving"] if plan.halving else []
    words += ["--beyond", str(plan.beyond)] if plan.beyond else []
    words += [] if plan.k_shot is None else ["--k-shot", str(plan.k_shot)]
    default = asdict(Settings())
    for name, value in asdict(plan.settings).items():
        if value != default[name] or name in ("steps", "batch_size"):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def _task_words(task: Mapping[str, Any]) -> list[str]:
    found = ["--task", str(task.get("kind", "classification"))]
    if task.get("also"):
        task = {**task, "metric": (task.get("metric", "exact_match"), *task["also"]), "also": ()}
    for name, option in TASK_OPTIONS.items():
        value = task.get(name)
        if isinstance(value, Mapping) and value:
            found += [option, *(f"{label}={word}" for label, word in value.items())]
        elif isinstance(value, tuple | list):
            found += [option, *map(str, value)] if value else []
        elif value is True:
            found += [option]
        elif value:
            found += [option, str(value)]
    return found


def _seed_words(seeds: Sequence[int]) -> list[str]:
    counted = len(seeds) == 1 or list(seeds) == list(range(len(seeds)))
    return [str(len(seeds))] if counted else [str(seed) for seed in seeds]
