"""How every arm is trained, as data: what the loop does with it stands in `loop`."""

from dataclasses import dataclass
from typing import Annotated

from tunescope.system.option import Option

OPTIMIZERS = ("adamw", "adafactor")
SCHEDULES = ("constant", "linear", "cosine")
PRECISIONS = ("auto", "float32", "bfloat16")


_BATCH = Option(
    "rows of one update; auto: 16, in more parts where memory ends, with the same gradient.",
    word=("auto", "halve_batches"),
    shows_default=True,
    command="always",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How it is trained; fixed before the data and the same for every arm.

    Each field is an option of `tunescope compare` and a name in `compare(...)`: steps, batch_size and accumulate (the
    parts of a batch); optimizer, schedule, warmup, weight_decay and clip, of the updates; precision, of the losses;
    eval_every (None: a tenth of the steps) and patience, of early stopping. `tunescope compare --help` and
    docs/training.md say what each of them means.
    """

    steps: Annotated[int, Option("updates of one run, at most.", shows_default=True, command="always")] = 500
    batch_size: Annotated[int, _BATCH] = 16
    accumulate: Annotated[int, Option("parts that a batch is cut into, to save memory.", shows_default=True)] = 1
    optimizer: Annotated[str, Option("adamw or adafactor.", shows_default=True)] = "adamw"
    schedule: Annotated[str, Option("constant, linear or cosine.", shows_default=True)] = "linear"
    warmup: Annotated[float, Option("share of the steps in which the rate rises.", shows_default=True)] = 0.06
    weight_decay: Annotated[float, Option("of the trained tensors.", shows_default=True)] = 0.0
    clip: Annotated[float, Option("the largest norm of the gradient.", shows_default=True)] = 1.0
    precision: Annotated[
        str, Option("auto (bfloat16 on a GPU that has it), float32 or bfloat16.", shows_default=True)
    ] = "auto"
    eval_every: Annotated[int, Option("steps between development scores (default: a tenth of the steps).")] = None  # type: ignore[assignment]
    patience: Annotated[
        int, Option("development scores in a row without a new best before stopping.", shows_default=True)
    ] = 5

    def __post_init__(self) -> None:
        if self.eval_every is None:
            object.__setattr__(self, "eval_every", max(1, self.steps // 10))
