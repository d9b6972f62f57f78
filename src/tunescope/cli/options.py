"""The options that verbs share, made from the fields of Plan, Settings and the kinds of task; and their plan.

Nothing heavy is imported until then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tunescope.cli.harness import rows_of
from tunescope.errors import UserError
from tunescope.reproduce.ask import Ask
from tunescope.system.option import FieldOption, options_of
from tunescope.system.ranks import begun_count
from tunescope.tasks.make import USUAL, kind_of, kinds
from tunescope.trial.plan import Plan
from tunescope.trial.train.settings import Settings

Many = Parameter(consume_multiple=True, negative="", show_default=False)
PARTS = {
    "dev": Annotated[str | None, Parameter(help="development rows (default: a tenth of the training rows).")],
    "test": Annotated[str | None, Parameter(help="test rows (default: a tenth of the training rows).")],
}


def _parameter(one: FieldOption, about: str) -> Any:
    """The type of an option that need not be given, and how cyclopts reads it."""
    many = getattr(one.typed, "__origin__", None) is tuple
    switch = one.typed is bool and not one.option.shows_default
    told = Parameter(
        name=list(one.names),
        help=about,
        consume_multiple=many or None,
        negative="" if many or switch else None,
        show_default=(lambda _: one.default) if one.option.shows_default else False,
    )
    return Annotated[one.typed | None, told]


def _flat(name: str, about: str, options: Mapping[str, Any], first: Iterable[Any] = ()) -> Any:
    """A dataclass with a field for each option, None where it is not given; its options stand beside the verb's own."""
    space = {"__module__": __name__, "__doc__": about}
    every = [*first, *((key, kind, None) for key, kind in options.items())]
    return Parameter(name="*")(make_dataclass(name, every, frozen=True, namespace=space))


def _plan_options() -> Any:
    own = {one.key: _parameter(one, one.option.help) for kind in (Plan, Settings) for one in options_of(kind)}
    return _flat("PlanOptions", "What is compared, how often, and how every arm is trained.", PARTS | own)


def _recipe_options() -> Any:
    told = {one.key: _parameter(one, one.option.help) for one in options_of(Ask)}
    return _flat("RecipeOptions", "What a recipe is asked for.", told)


def _task_options() -> Any:
    """The options of all kinds of task; one that several have is there once."""
    having: dict[str, list[tuple[str, FieldOption]]] = {}
    for name, kind in kinds().items():
        for one in options_of(kind):
            having.setdefault(one.key, []).append((name, one))
    told = {key: _parameter(those[0][1], _help(those)) for key, those in having.items()}
    *others, last = [f"{name} ({kind.about})" if kind.about else name for name, kind in kinds().items()]
    harness = "to compare and check, a task of lm-evaluation-harness as lm_eval:NAME, which brings its rows along"
    task = Annotated[str, Parameter(help=f"{', '.join(others)}, or {last}; or, {harness}.")]
    return _flat("TaskOptions", "What the rows mean.", told, [("task", task, USUAL)])


def _help(those: Iterable[tuple[str, FieldOption]]) -> str:
    named = " and ".join(", ".join(part) for part in _but_last([name for name, _ in those]) if part)
    helps = dict.fromkeys(one.option.help.replace("{kinds}", named) for _, one in those)
    return " ".join(helps)


def _but_last(names: list[str]) -> tuple[list[str], list[str]]:
    return names[:-1], names[-1:]


if TYPE_CHECKING:  # what mypy sees of them

    class PlanOptions:
        def __init__(self, **given: Any) -> None: ...

    class TaskOptions:
        def __init__(self, **given: Any) -> None: ...

    class RecipeOptions:
        def __init__(self, **given: Any) -> None: ...

else:
    PlanOptions, TaskOptions, RecipeOptions = _plan_options(), _task_options(), _recipe_options()


def recipe_ask(name: str, options: RecipeOptions | None, *, check: bool) -> Ask:
    """What a recipe is asked for."""
    own = {one.key: one for one in options_of(Ask)}
    fields = [own[key].read(value) for key, value in _typed(options).items()]
    return Ask(name, check=check, **{field: value for one in fields for field, value in one.items()})


def question(
    model: str,
    data: str | None,
    options: PlanOptions | None = None,
    task: TaskOptions | None = None,
    include: str | None = None,
) -> Plan:
    """What was asked, checked; nothing is loaded yet but the rows of a task of lm-evaluation-harness."""
    from tunescope.trial.plan_check import check, check_seeds
    from tunescope.trial.plan_fields import planned

    given = _typed(options)
    if "lr" in given and "trials" in given:
        raise UserError("--lr says which learning rates are tried, and --trials how many of a method's own; give one.")
    parts = {"train": data, **{part: given.pop(part) for part in PARTS if part in given}}
    told = _typed(task or TaskOptions())
    files, kind = rows_of(told.pop("task"), parts, include)
    if len(given.get("seeds", ())) == 1:
        if given["seeds"][0] < 0:
            check_seeds(given["seeds"])  # which tells what was typed
        given["seeds"] = given["seeds"][0]
    asked = check(planned(model, files, kind | _task(kind["kind"], told), given))
    if "parallel" in given and (asked.processes or begun_count()) == 1:
        raise UserError(
            f"--parallel {asked.parallel} has no effect in one process. Leave it out, or type: "
            f"--processes 2 --parallel {asked.parallel}, with as many processes as there are GPUs"
        )
    return asked


def _typed(options: Any) -> dict[str, Any]:
    """Name -> value, of what was typed."""
    every = {} if options is None else {one.name: getattr(options, one.name) for one in fields(options)}
    empty = next((name for name, value in every.items() if value == ()), None)
    if empty is not None:
        raise UserError(f"--{empty.replace('_', '-')} has nothing behind it; give one or more, or leave it out.")
    return {name: value for name, value in every.items() if value is not None}


def _task(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Only what was given: the rest is the task's own default."""
    own = {one.key: one for one in options_of(kind_of(name))}
    for kind in kinds().values():
        wrong = next((one for one in options_of(kind) if one.key in given and one.key not in own), None)
        if wrong is not None:
            others = [other for other, one in kinds().items() if wrong.key in {each.key for each in options_of(one)}]
            raise UserError(f"{wrong.names[0]} is for --task {' or '.join(others)}, and this is --task {name}.")
    found = {"kind": name}
    for key, value in given.items():
        found |= own[key].read(value)
    return found
