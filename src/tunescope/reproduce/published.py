"""How long the papers trained, at which rate, and how they wrote: what --protocol paper asks for; and ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tunescope.errors import UserError
from tunescope.reproduce.ask import Ask
from tunescope.trial.plan import DEV_SHARE


@dataclass(frozen=True)
class Course:
    """How every line is trained and scored; rates () means each method's own grid, of which `trials` are tried.

    beyond: rates past an end of a grid that may be tried, while the last of that end wins.
    epochs: times over the training rows, instead of steps.
    instead: what is published for encoders, by the name "encoder", or for a corpus, by its own.
    full: the rate of full tuning, where the paper gave it one of its own.
    accumulate: parts that a batch is cut into, as published, to save memory.
    network: the width of the network that makes a prefix or an infix; None trains it directly.
    label_smoothing, z_loss: of lines that write their answers.
    of: the corpus that it was published for; "" where it was for many.
    """

    steps: int
    batch_size: int
    accumulate: int = 1
    rates: tuple[float, ...] = ()
    full: float | None = None
    trials: int = 3
    beyond: int = 0
    schedule: str = "linear"
    warmup: float = 0.06
    patience: int = 5
    epochs: int | None = None
    beams: int = 1
    optimizer: str = "adamw"
    network: int | None = None
    weight_decay: float = 0.0
    clip: float = 1.0
    no_repeat_ngram: int = 0
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    precision: str = "auto"
    of: str = ""
    instead: "Mapping[str, Course]" = field(default_factory=dict)


E2E = Course(  # Li and Liang 2021, section 5.3
    steps=0,
    epochs=5,
    batch_size=10,
    rates=(8e-5,),
    full=5e-5,
    warmup=0.0,
    patience=1000,
    beams=5,
    network=512,
    of="e2e",
)
WEBNLG = replace(E2E, batch_size=5, rates=(5e-5,), full=1e-5, of="webnlg")
XSUM = replace(E2E, of="xsum", epochs=30, batch_size=48, accumulate=3, rates=(5e-5,), full=None, beams=6, network=800)
FEW_TABLES = replace(E2E, steps=400, epochs=None, rates=(5e-5,), warmup=0.25)  # the same, section 6.3
FEW = replace(FEW_TABLES, instead={"xsum": replace(FEW_TABLES, network=XSUM.network, beams=XSUM.beams, of="xsum")})
TABLE_TO_TEXT = replace(E2E, instead={"webnlg": WEBNLG, "xsum": XSUM})
PROMPT_TUNING = Course(  # Lester et al. 2021, section 3.2
    steps=30_000,
    batch_size=32,
    rates=(0.3,),
    full=1e-3,
    schedule="constant",
    warmup=0.0,
    patience=1000,
    optimizer="adafactor",
    weight_decay=1e-5,
    clip=1e9,  # none: Adafactor clips its own steps
    z_loss=1e-4,
)
GLUE = Course(  # He et al. 2022, appendix A
    steps=0,
    epochs=10,
    batch_size=32,
    rates=(1e-4,),
    patience=1000,
    network=800,
    weight_decay=0.1,
)
TRANSLATION = Course(  # He et al. 2022, appendix A: WMT16, 16,384 tokens a step, which are some 360 sentences
    steps=50_000,
    batch_size=360,
    accumulate=4,
    rates=(5e-5,),
    warmup=0.0,
    patience=1000,
    beams=5,
    network=800,
    weight_decay=0.01,
    label_smoothing=0.1,
    of="wmt_en_ro",
)
SUMMARIES = Course(  # He et al. 2022, appendix A: XSum
    steps=100_000,
    batch_size=64,
    accumulate=4,
    rates=(5e-5,),
    warmup=0.0,
    patience=1000,
    beams=6,
    network=800,
    weight_decay=0.01,
    clip=0.1,
    no_repeat_ngram=3,
    label_smoothing=0.1,
    of="xsum",
    instead={"encoder": GLUE, "wmt_en_ro": TRANSLATION},
)


PEZ = Course(steps=5000, batch_size=16, of="sst2")  # Wen et al. 2023, of their code: steps of PEZ, which set the budget
LM_BFF = Course(  # Gao et al. 2021, section 3 and of their code; batches of 2 and 4 were tried too
    steps=1000,
    batch_size=8,
    rates=(1e-5, 2e-5, 5e-5),
    warmup=0.0,
    patience=1000,
)

DEV = 1600  # development inputs that a run is chosen by, of He et al. 2022 on XSum; of no other paper is it known
STARTS = {"prefix": "noise", "soft": "vocabulary"}


def begun(arm: str) -> str:
    """The arm, where nothing else is said with its prefix as noise and its soft prompt as sampled words.

    Comparisons begin them as demonstrations today, which is none of the papers' starts, nor of the committed tables.
    """
    items = arm.split("+")
    for place, item in enumerate(items):
        method, colon, fields = item.partition(":")
        if method in STARTS and "init_from=" not in fields:
            items[place] = f"{item}{',' if colon else ':'}init_from={STARTS[method]}"
    return "+".join(items)


def course(ask: Ask, paper: Course | None = None) -> Course:
    """That of the protocol asked for; `paper` is what was published."""
    if ask.protocol == "paper" and paper is not None:
        return paper
    return Course(steps=20, batch_size=8, trials=1) if ask.quick else Course(steps=600, batch_size=16, beyond=2)


def course_asked(ask: Ask, course: Course) -> Course:
    """The course with what the user set of it. Raises UserError for more parts of a batch than it has rows."""
    course = replace(course, instead={}, precision=ask.precision)
    course = course if ask.steps is None else replace(course, steps=ask.steps, epochs=None)
    course = course if ask.batch_size is None else replace(course, batch_size=ask.batch_size)
    if ask.accumulate is None:
        return course
    if ask.accumulate > course.batch_size:
        raise UserError(f"--accumulate {ask.accumulate}: a batch has {course.batch_size} rows; give at most as many.")
    return replace(course, accumulate=ask.accumulate)


def rows(ask: Ask) -> dict[str, int]:
    """The most inputs of each part, so that a line takes minutes; published sizes take all but of development."""
    if ask.protocol == "paper":
        return {"dev": DEV}
    return {"train": 200, "dev": 10, "test": 20} if ask.quick else {"train": 10_000, "dev": 100}


def dev_share(protocol: str) -> float | None:
    """Of a run's passes, what development scores may take; None: as much as they do, since ours have few inputs."""
    return DEV_SHARE if protocol == "paper" else None


def unified(summaries: str = "", translation: str = "") -> dict[str, dict[str, str]]:
    """What He et al. print of a line: ROUGE-1/2/L on XSum, with "/" between, BLEU on WMT16; "" where there is none."""
    return {"xsum": rouge(summaries), "wmt_en_ro": {"bleu_romanian": translation}}


def rouge(printed: str) -> dict[str, str]:
    """ "43.40/20.46/35.51" by metric."""
    return dict(zip(("rouge_1", "rouge_2", "rouge_l"), printed.split("/"), strict=True)) if printed else {}


def with_steps(settings: dict[str, Any], unit: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with the steps of a line on so many rows where these are published."""
    if "steps_by_rows" not in settings:
        return settings
    by_rows = settings["steps_by_rows"]
    steps = by_rows.get(unit["arm"], by_rows[""]).get(unit["part"], settings["course"]["steps"])
    return settings | {"course": settings["course"] | {"steps": steps}}
