"""The question that a comparison asks, as data; `plan_check` says which can be asked, `plan_json` keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from tunescope.data.row import LONGEST
from tunescope.system.option import Option
from tunescope.tasks.make import USUAL
from tunescope.trial.rates import Race
from tunescope.trial.train.settings import Settings

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
    max_seeds: int | None = None


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

    Most fields are options of `tunescope compare` and names in `compare(...)`, of which `tunescope compare --help` and
    docs/training.md say more. In a plan that is given to `compare` its model and data stand in for those here.

    model, data, task: the model's name, part -> file, and the kind of task with its fields.
    arms: as typed; () means the default ones for the model's kind.
    budgets: stored parameters; () leaves every size as typed.
    trials, rates: so many of each method's own grid of learning rates, or these; () means the grid.
    seeds: which, as numbers; () means three, and looks at more.
    threads, device: of each arm run, whatever the number of workers, so their numbers are the same. A plan's device is
        the cpu where none is said; `compare(...)` without a plan takes this machine's.
    settings: how every arm is trained.
    pilot_of, trial_steps: in a pilot, the comparison that it stands for, and the steps of a learning rate's trial; None
        where a trial is a run like the others.
    halving, beyond: learning rates that stop early, and those tried past an end of the grid; see `trial.rates`. None
        beyond is 3, or 0 where a single rate is tried.
    k_shot: rows of each label that every seed draws to train on; None takes all.
    dev_share: of a run's passes, what its development scores may take (`trial.dev_rows`); None scores all rows, while
        `compare(...)` without a plan or settings takes 0.2.
    together: runs that share a pass of the model; 0 takes what is quickest.
    fit: what the question was cut to, so that it is done in the minutes; see `comparison.time_cuts`.
    day: that a chat template which writes the day is to write, as 2026-11-26; "" is that on which the run is begun.
    chosen_precision: what a precision of "auto" came to where the run was begun; "" is what it comes to here.
    apart: whether the methods of a composition are tried at rates apart (`trial.rates`); no in a pilot.
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
        Option(
            "cpu, cuda, cuda:1 or mps (default: cuda where torch sees a GPU of NVIDIA or AMD, else cpu).",
            command="never",
        ),
    ] = "cpu"
    settings: Settings = field(default_factory=Settings)
    pilot_of: Whole | None = None
    trial_steps: int | None = None
    fit: Fit | None = None
    apart: bool = True
    day: str = ""
    chosen_precision: str = ""
    halving: Annotated[
        bool,
        Option(
            "stop learning rates that have lost: at the first score from a third of the steps on a third goes on.",
            shows_default=True,
        ),
    ] = False
    beyond: Annotated[
        int | None,
        Option(
            "learning rates past an end of its grid that an arm may try, one at a time, while the last one wins, "
            "and of composed methods each alone at its next rate "
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
    def training(self) -> Settings:
        """The settings in the precision that is computed in: an arm's id has "auto", whatever that came to."""
        return replace(self.settings, precision=self.chosen_precision or self.settings.precision)

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
