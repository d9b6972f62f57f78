"""The question that a comparison asks, as data: checked before anything is loaded, kept in config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from tunescope.data.row import LONGEST
from tunescope.errors import UserError
from tunescope.models.smaller import DEVICE_MAPS, LOADS, QUANTISED
from tunescope.system.option import Option
from tunescope.system.plugins import one_of
from tunescope.tasks.make import USUAL
from tunescope.trial.rates import Race, check_beyond, check_halving
from tunescope.trial.train.settings import OPTIMIZERS, PRECISIONS, SCHEDULES, Settings

PARTS = ("train", "dev", "test")
AFTERWARDS = (
    "forgetting",
    "max_seeds",
    "margin",
    "minutes",
    "longest_field",
    *("processes", "parallel", "gradient_checkpointing", "device_map", "halve_batches"),
)  # they change no number: a finished run may have others
PARALLEL = ("fsdp", "ddp")
NO_TEXT = "none"  # of --forgetting
SEEDS = (0, 1, 2)
MAX_SEEDS = 12
MOST = 1000  # more seeds, or learning rates, are a slip of the hand
BEYOND = 3
DEV_SHARE = 0.2


@dataclass(frozen=True)
class Whole:
    """What a pilot cuts short: the full comparison's steps, seeds, stopping and learning rates."""

    steps: int
    seeds: tuple[int, ...]
    eval_every: int
    patience: int
    trials: int
    rates: tuple[float, ...]


@dataclass(frozen=True)
class Fit:
    """What a comparison was cut to, so as to be done in the minutes. seconds: that it was expected to take."""

    minutes: float
    seconds: float
    left_out: tuple[str, ...]
    question: str = ""  # the hash of what was asked


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a run's numbers depend on, but for the contents of the files it names.

    A field with an `Option`, which says what it is, is one of `tunescope compare` and a name in `compare(...)`. In a
    plan that is given to `compare` its model and data stand in for those here.

    model, data, task: the model's name, part -> file, and the kind of task with its fields.
    arms: as typed; () means the default ones for the model's kind.
    budgets: stored parameters; () leaves every size as typed.
    trials, rates: so many of each method's own grid of learning rates, or these; () means the grid.
    seeds: which, as numbers; () means three, and looks at more.
    threads, device: of each arm run, whatever the number of workers, so their numbers are the same.
    settings: how every arm is trained.
    pilot_of, trial_steps: in a pilot, the comparison that it stands for, and the steps of a learning rate's trial; None
        where a trial is a run like the others.
    halving, beyond: learning rates that stop early, and those tried past an end of the grid; see `trial.rates`. None
        beyond is 3, or 0 where a single rate is tried.
    k_shot: rows of each label that every seed draws to train on; None takes all.
    dev_share: of a run's passes, what its development scores may take (`trial.dev_rows`); None scores all rows.
    together: runs that share a pass of the model; 0 takes what is quickest.
    fit: what the question was cut to, so that it is done in the minutes; see `comparison.fit`.
    max_seeds, margin: of the verdict's looks: the most seeds of the two arms that decide, added while there is no
        verdict (None: none are, or 12 where no seeds are given either); and what counts as no worse.
    minutes: that the comparison may take, which is cut to fit before it begins (None: as long as it takes).
    forgetting: the file of other text that the model's own loss is measured on; "" takes the bundled prose.
    longest_field: characters of a row's field; None takes `data.row.LONGEST`.
    load, device_map, gradient_checkpointing: of a model that is large for its memory; see docs/scale.md.
    halve_batches: out of memory, a batch goes through in more parts; typed as a batch size of "auto".
    processes, parallel: how many share the model, 0 as many as torchrun has begun, and what each has of it.
    """

    model: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=lambda: {"kind": USUAL})
    arms: Annotated[
        tuple[str, ...],
        Option(
            "such as zero-shot demos:k=4 prefix lora:rank=4; `tunescope arms` lists the methods (default: of a decoder "
            "zero-shot, demos:k=4, soft, prefix, lora, adapter, bias and full, where the model has them)."
        ),
    ] = ()
    budgets: Annotated[
        tuple[int, ...], Option("stored parameters of each arm; several repeat the arms.", ("--budget",))
    ] = ()
    trials: Annotated[
        int,
        Option("learning rates tried for each arm, from its method's own grid (default: 3).", command="always"),
    ] = 3
    rates: Annotated[
        tuple[float, ...], Option("these learning rates for every arm instead.", ("--lr",), python="learning_rates")
    ] = ()
    seeds: Annotated[
        tuple[int, ...], Option("how many, or which (default: 3, and more by --max-seeds).", command="always")
    ] = ()
    threads: int = 1
    device: Annotated[
        str,
        Option("cpu, cuda, cuda:1 or mps (default: a GPU where torch sees one, else cpu).", command="never"),
    ] = "cpu"
    settings: Settings = field(default_factory=Settings)
    pilot_of: Whole | None = None
    trial_steps: int | None = None
    fit: Fit | None = None
    halving: Annotated[
        bool,
        Option(
            "stop learning rates that have clearly lost: at a third of the steps the best third goes on.",
            shows_default=True,
        ),
    ] = False
    beyond: Annotated[
        int | None,
        Option(
            "learning rates past an end of its grid that an arm may try, one at a time, while the last one wins "
            f"(default: {BEYOND}).",
            command="always",
        ),
    ] = None
    k_shot: Annotated[
        int | None,
        Option("train on so many rows of each label, drawn by each seed, and choose by as many others; needs --test."),
    ] = None
    dev_share: Annotated[
        float | None,
        Option(
            "the share of a run's passes that its development scores may take; where all rows would take more, some of "
            f"them tell when to stop, and all are scored at the end (default: {DEV_SHARE}; 1: all, each time).",
            command="always",
        ),
    ] = None
    together: Annotated[
        int,
        Option(
            "runs that share each pass of the model, where they can; 0 measures what is quickest, and tells.",
            shows_default=True,
            command="never",  # a question of time alone
        ),
    ] = 1
    max_seeds: Annotated[
        int | None,
        Option(
            "while there is no verdict, add seeds to the two arms that decide: 6, 12, 20, ... up to so many "
            f"(default: {MAX_SEEDS}, or none where --seeds is given)."
        ),
    ] = None
    margin: Annotated[
        float, Option("what counts as no worse, as a share of the metric's scale.", shows_default=True)
    ] = 0.02
    minutes: Annotated[
        float | None,
        Option(
            "the comparison that fits: steps are timed here, then less is asked, in a stated order, until all is "
            "done in so many minutes.",
            command="never",
        ),
    ] = None
    forgetting: Annotated[
        str,
        Option(
            "a text that has nothing to do with the task: the table tells how much worse the model predicts it with an "
            "arm's artifact on (default: bundled English prose; none leaves it out)."
        ),
    ] = ""

    longest_field: Annotated[
        int | None,
        Option(f"characters of a field of a row; a file with a longer one is refused (default: {LONGEST:,})."),
    ] = None

    load: Annotated[
        str, Option("the model's weights in bfloat16, 8bit or 4bit, the last two by bitsandbytes or torchao.")
    ] = ""
    device_map: Annotated[str, Option("auto: the model's layers spread over this machine's GPUs.")] = ""
    gradient_checkpointing: Annotated[
        bool, Option("keep little of each layer for the backward pass, and compute it again there.")
    ] = False
    halve_batches: bool = False
    processes: Annotated[
        int,
        Option(
            "processes that share the model, each with a part of every batch's rows (default: those that torchrun has "
            "begun, else 1)."
        ),
    ] = 0
    parallel: Annotated[
        str, Option("with several processes: fsdp shards the model over them, ddp has it whole in each.")
    ] = "fsdp"

    def __post_init__(self) -> None:
        """What is left open, by what else is given."""
        if not self.seeds and self.max_seeds is None and self.k_shot is None:
            object.__setattr__(self, "max_seeds", MAX_SEEDS)
        if not self.seeds:
            object.__setattr__(self, "seeds", SEEDS)

    @property
    def every_seed(self) -> tuple[int, ...]:
        """The seeds, and behind them those that looks may add."""
        more = (self.max_seeds or 0) - len(self.seeds)
        return (*self.seeds, *(max(self.seeds) + 1 + index for index in range(more)))

    @property
    def past(self) -> int:
        """How many learning rates past an end of its grid an arm may try."""
        if self.beyond is None:
            return BEYOND if self.race.rates > 1 else 0
        return self.beyond

    @property
    def race(self) -> Race:
        """What the rules on learning rates ask of the plan."""
        return Race(len(self.rates) or self.trials, self.settings.steps, self.settings.eval_every)


def check(plan: Plan) -> Plan:
    """The plan, if every field can be used.

    Raises:
        UserError: names the option, what it was given and what it takes.
    """
    settings = plan.settings
    for name in ("steps", "batch_size", "accumulate", "eval_every", "patience"):
        _within(name, getattr(settings, name), 1)
    if settings.accumulate > settings.batch_size:
        raise UserError(
            f"--accumulate {settings.accumulate} is more parts than a batch of {settings.batch_size} has rows; "
            f"give at most {settings.batch_size}."
        )
    _within("trials", plan.trials, 1, MOST)
    _within("threads", plan.threads, 1)
    _within("together", plan.together, 0)
    _within("processes", plan.processes, 0)
    one_of("parallel", plan.parallel, PARALLEL)
    _check_memory(plan)
    for name in ("k_shot", "longest_field"):
        if getattr(plan, name) is not None:
            _within(name, getattr(plan, name), 1)
    for budget in plan.budgets:
        _within("budget", budget, 1, 10**12)
    if plan.halving:
        check_halving(plan.race)
    _within("beyond", plan.past, 0, MOST)
    if plan.beyond:
        check_beyond(plan.race)
    if plan.dev_share is not None and not 0 < plan.dev_share <= 1:
        raise UserError(f"--dev-share {plan.dev_share:g} is a share of a run's passes above 0, at most 1, such as 0.2.")
    for rate in plan.rates:
        if not 0 < rate < float("inf"):
            raise UserError(f"--lr {rate:g} is not a learning rate; give numbers above 0, such as --lr 1e-3 3e-3.")
    if not 0 <= settings.warmup < 1:
        raise UserError(f"--warmup {settings.warmup:g} is a share of the steps; give 0 or more and less than 1.")
    if not 0 < settings.clip < float("inf") or not 0 <= settings.weight_decay < float("inf"):
        raise UserError("--clip must be above 0 and --weight-decay at least 0, and finite; --clip 1e9 cuts nothing.")
    for name, allowed in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("precision", PRECISIONS)):
        one_of(name, getattr(settings, name), allowed)
    check_seeds(plan.seeds)
    _check_looks(plan)
    return plan


def _check_memory(plan: Plan) -> None:
    for name, allowed in (("load", LOADS), ("device_map", DEVICE_MAPS)):
        if getattr(plan, name):
            one_of(name.replace("_", "-"), getattr(plan, name), allowed[1:])
    if plan.device_map and plan.load in QUANTISED:
        raise UserError(
            "--device-map auto spreads a whole model, and --load makes it small enough for one device: give one."
        )
    if plan.processes > 1 and plan.device_map:
        raise UserError(
            "--device-map auto is for one process with several GPUs; with --processes, --parallel fsdp shards."
        )
    if plan.processes > 1 and plan.load in QUANTISED and plan.parallel == "fsdp":
        raise UserError(f"--load {plan.load} keeps weights that FSDP2 cannot shard. Type: --parallel ddp")
    if plan.processes > 1 and plan.halve_batches and plan.parallel == "fsdp":
        raise UserError(
            "--batch-size auto wants a model that each process has whole: of a sharded one those with memory left wait "
            "within a layer for the one without. Type: --batch-size 16 --accumulate 4, or --parallel ddp"
        )


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises UserError for none, for one twice, and for numbers that are no seeds."""
    if not seeds or len(seeds) > MOST or len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**31 for seed in seeds):
        given = " ".join(map(str, seeds[:MOST])) or "0"
        raise UserError(
            f"--seeds {given}: give how many, 1 or more, or which: two or more different "
            f"whole numbers from 0 to 2147483647; at most {MOST}."
        )


def _check_looks(plan: Plan) -> None:
    if not 0 < plan.margin < 1:
        raise UserError(f"--margin {plan.margin:g} is a share of the metric's scale above 0 and below 1, such as 0.02.")
    if plan.minutes is not None and not 0 < plan.minutes < float("inf"):
        raise UserError(f"--minutes {plan.minutes:g} is no time; give more than 0, or leave it out.")
    if plan.max_seeds is None:
        return
    _within("max_seeds", plan.max_seeds, 1, MOST)
    if plan.max_seeds < len(plan.seeds):
        raise UserError(
            f"--max-seeds {plan.max_seeds} is below the {len(plan.seeds)} seeds that every arm has; "
            f"give {len(plan.seeds)} or more, or fewer --seeds."
        )
    if plan.k_shot is not None:
        raise UserError(
            "--max-seeds adds seeds later, and with --k-shot every seed draws its rows at first: leave one."
        )


def to_json(plan: Plan) -> dict[str, Any]:
    """As config.json has it: what a later version takes where nothing is said does not change a run."""
    return asdict(plan) | {"beyond": plan.past}


def from_json(config: Mapping[str, Any], source: Path) -> Plan:
    """The plan in a config.json, checked; anything unknown or of a wrong type is refused by name."""
    from pydantic import TypeAdapter, ValidationError

    names = {entry.name for entry in fields(Plan)}
    config = {"beyond": 0, **config}  # of a run begun when nothing was tried past an end
    missing = next((name for name in ("model", "data", "task") if name not in config), None)
    if missing is not None:
        raise UserError(f"{source}: '{missing}' cannot be used (Field required); start the comparison anew.")
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
    from tunescope.data.corpus import expanded  # reads tables and archives, which --help need not

    given = data if isinstance(data, Mapping) else {"train": data}
    unknown = sorted(set(given) - set(PARTS))
    if unknown or "train" not in given:
        raise UserError(
            f"data has the parts {', '.join(sorted(given)) or 'none'}; it needs 'train' and may have 'dev' and 'test'."
        )
    return expanded(given)


def text_path(given: str | Path) -> str:
    """What --forgetting was given, a file as an absolute path."""
    return str(given) if str(given) in ("", NO_TEXT) else str(Path(given).absolute())


def _within(name: str, value: int, least: int, most: int = 10**9) -> None:
    option = f"--{name.replace('_', '-')}"
    if value < least:
        raise UserError(f"{option} {value} is too small; give a whole number of {least} or more.")
    if value > most:
        raise UserError(f"{option} {value} is too large; give a whole number of at most {most}.")
