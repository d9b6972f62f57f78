"""The question that a comparison asks, as data: checked before anything is loaded, kept in config.json."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.optimizers import OPTIMIZERS, SCHEDULES
from tunescope.train import Settings

if TYPE_CHECKING:
    from tunescope.comparing.racing import Race

PARTS = ("train", "dev", "test")
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
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Whole:
    """What a pilot cuts short: the full comparison's steps, seeds, stopping and learning rates."""

    steps: int
    seeds: tuple[int, ...]
    eval_every: int
    patience: int
    trials: int
    rates: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a run's numbers depend on, but for the contents of the files it names.

    arms: as typed; () means the default ones for the model's kind.
    budgets: stored parameters; () leaves every size as typed.
    rates: learning rates instead of each method's own grid; () means the grid.
    threads: of each arm run, whatever the number of workers, so their numbers are the same.
    pilot_of: in a pilot, the comparison that it stands for.
    k_shot: rows of each label that every seed draws to train on, and as many to choose by; None takes them all.
    together: how many runs share a pass of the model, where they can; 0 takes what a short measurement finds quickest.
    halving: whether learning rates that have clearly lost stop early; see `trial.rates`.
    beyond: learning rates past an end of its grid that an arm may try, one at a time while the last one wins.
    trial_steps: in a pilot, the steps of a learning rate's trial; None where a trial is a run like the others.
    """

    model: str
    data: Mapping[str, str]
    task: Mapping[str, Any]
    arms: tuple[str, ...] = ()
    budgets: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    trials: int = 3
    rates: tuple[float, ...] = ()
    threads: int = 1
    device: str = "cpu"
    settings: Settings = field(default_factory=Settings)
    pilot_of: Whole | None = None
    trial_steps: int | None = None
    k_shot: int | None = None
    together: int = 1
    halving: bool = False
    beyond: int = 0

    @property
    def race(self) -> "Race":
        """What the rules on learning rates ask of the plan."""
        from tunescope.comparing.racing import Race

        return Race(len(self.rates) or self.trials, self.settings.steps, self.settings.eval_every)


def check(plan: Plan) -> Plan:
    """The plan, if every field can be used.

    Raises:
        UserError: names the option, what it was given and what it takes.
    """
    settings = plan.settings
    for name in ("steps", "batch_size", "accumulate", "eval_every", "patience"):
        _at_least(name, getattr(settings, name), 1)
    if settings.accumulate > settings.batch_size:
        raise UserError(
            f"--accumulate {settings.accumulate} is more parts than a batch of {settings.batch_size} has rows; "
            f"give at most {settings.batch_size}."
        )
    _at_least("trials", plan.trials, 1)
    _at_least("threads", plan.threads, 1)
    _at_least("together", plan.together, 0)
    if plan.k_shot is not None:
        _at_least("k_shot", plan.k_shot, 1)
    for budget in plan.budgets:
        _at_least("budget", budget, 1)
    if plan.halving:
        from tunescope.comparing import racing

        racing.check_halving(plan.race)
    _at_least("beyond", plan.beyond, 0)
    if plan.beyond:
        from tunescope.comparing import beyond

        beyond.check_beyond(plan.race)
    for rate in plan.rates:
        if not 0 < rate < float("inf"):
            raise UserError(f"--lr {rate:g} is not a learning rate; give numbers above 0, such as --lr 1e-3 3e-3.")
    if not 0 <= settings.warmup < 1:
        raise UserError(f"--warmup {settings.warmup:g} is a share of the steps; give 0 or more and less than 1.")
    if settings.clip <= 0 or settings.weight_decay < 0:
        raise UserError("--clip must be above 0 and --weight-decay at least 0.")
    for name, allowed in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("precision", PRECISIONS)):
        one_of(name, getattr(settings, name), allowed)
    if not plan.seeds or len(set(plan.seeds)) < len(plan.seeds) or not all(0 <= s < 2**31 for s in plan.seeds):
        raise UserError(
            f"--seeds {' '.join(map(str, plan.seeds)) or 0}: give how many, 1 or more, or which: two or more different "
            "whole numbers from 0 to 2147483647."
        )
    return plan


def one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        close = difflib.get_close_matches(value, allowed, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise UserError(f"--{option} '{value}' is not known.{hint} It is one of: {', '.join(allowed)}.")


def to_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)


def from_json(config: Mapping[str, Any], source: Path) -> Plan:
    """The plan in a config.json, checked; anything unknown or of a wrong type is refused by name."""
    from pydantic import TypeAdapter, ValidationError

    names = {entry.name for entry in fields(Plan)}
    try:
        plan = TypeAdapter(Plan).validate_python({key: config[key] for key in config if key in names})
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{source}: '{where}' cannot be used ({first['msg']}); start the comparison anew.") from None
    return check(plan)


def data_paths(data: str | Path | Mapping[str, str | Path]) -> dict[str, str]:
    """{"train": ..., "dev": ..., "test": ...} as absolute paths, of one file, a mapping, or a corpus (NAME:FOLDER).

    Raises UserError for other parts, for none to train on, and for a corpus or a part of it that is not there.
    """
    from tunescope.gathering.parts import expanded

    given = data if isinstance(data, Mapping) else {"train": data}
    unknown = sorted(set(given) - set(PARTS))
    if unknown or "train" not in given:
        raise UserError(
            f"data has the parts {', '.join(sorted(given)) or 'none'}; it needs 'train' and may have 'dev' and 'test'."
        )
    return expanded(given)


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
    from tunescope.gathering.spec import shown

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


def model_name(model: str) -> str:
    """A hub id as it is; of a folder its last part, since results hold no paths."""
    return Path(model).name if model.startswith((".", "/", "~")) or Path(model).exists() else model


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


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"--{name.replace('_', '-')} {value} is too small; give a whole number of {least} or more.")
