"""Recipes on a given model and corpus: lines, each a way to adapt the model, and the rows that all lines share."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tunescope.data import splits
from tunescope.data.corpus import Rows, digest, expanded, read
from tunescope.data.corpus_name import FOLDER, Spec, parsed, scored_by
from tunescope.errors import UserError
from tunescope.models.load import load_tokenizer, on_paper
from tunescope.reproduce import published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import model_settings
from tunescope.reproduce.published import Course
from tunescope.reproduce.recipe import Settings
from tunescope.system import plugins

if TYPE_CHECKING:
    from tunescope.data.corpus import Rows

SAVING = ("accumulate", "load", "device-map", "gradient-checkpointing")  # of memory
LOADING = ("load", "device_map", "gradient_checkpointing")  # those that are `compare`'s as they are typed
SIZES = ("steps", "batch-size", "inputs")
TAKES = ("protocol", "quick", "seeds", "model", "data", *SIZES, "precision", *SAVING, "lines")
WRITERS = ("decoder", "encoder-decoder")
ALL = (*WRITERS, "encoder")
OF_UNIT = ("arm", "share", "part", "template")
OF_MODEL = ("model", "kind", "weights", "parameters", "languages")


@dataclass(frozen=True)
class Line:
    """A row of the table.

    share: of the model's parameters, which the arm's size is set to; None leaves it as typed.
    part: which variation of the data, for recipes that have several.
    template: of the task, where labels are chosen.
    paper: the paper's words, of each corpus by metric.
    """

    label: str
    arm: str
    share: float | None = None
    part: str = ""
    template: str = "{input}"
    paper: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def settings(
    ask: Ask,
    lines: Sequence[Line],
    course: Course,
    rows: Mapping[str, int],
    kinds: Sequence[str] = WRITERS,
    *,
    choose: bool = False,
) -> Settings:
    """What a recipe on --model and --data keeps.

    kinds: of model that the recipe is about.
    choose: answers are chosen among the labels, which an encoder always does; else they are written.
    rows: the most inputs of each part; training rows are counted singly, of dev and test the distinct inputs.

    Raises:
        UserError: no model or data given, or one that cannot be used.
    """
    from tunescope.system.machine import default_device, precision_on

    spec, specs = _asked(ask)
    assert ask.model is not None
    model, device = model_settings(ask.model, kinds, ask.name, paper=ask.check), default_device()
    choose = _chooses(ask, spec, model["kind"], choose)
    course = published.course_asked(
        ask, course.instead.get("encoder" if model["kind"] == "encoder" else spec.name, course)
    )
    course = replace(course, precision=precision_on(device, course.precision))
    metrics, not_scored = (["accuracy"], []) if choose else _metrics(_module(spec.name))
    if choose:  # what is chosen among labels is trained on the labels' cross-entropy alone
        course = replace(course, label_smoothing=0.0, z_loss=0.0)
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "data": ask.data,
        "sha256": {part: digest(one) for part, one in specs.items() if one is not None},
        "rows": _at_most(rows, ask.inputs),
        "lines": kept(ask, lines, course.network),
        "choose": choose,
        "metrics": metrics,
        "not_scored": not_scored,
        "languages": {} if choose else _languages(ask.model, _module(spec.name)),
        "lengths": {} if choose or ask.protocol != "paper" else getattr(_module(spec.name), "LENGTHS", {}),
        "lowercase": not choose and getattr(_module(spec.name), "LOWERCASE", False),
        "course": asdict(course),
        "device": device.type,
        **{name: given for name in LOADING if (given := getattr(ask, name))},
        **model,
    }


def has_labels(ask: Ask) -> bool:
    """Whether the corpus asked for has labels to choose among; what is no corpus is refused by `settings`."""
    return not scored_by(ask.data or "")


def _at_most(rows: Mapping[str, int], inputs: int | None) -> dict[str, int]:
    """The most of each part, where no more than so many inputs are scored."""
    if inputs is None:
        return dict(rows)
    return dict(rows) | {"dev": min(rows.get("dev", inputs), inputs), "test": inputs}


def _asked(ask: Ask) -> tuple[Spec, dict[str, Spec | None]]:
    """The corpus asked for, and its parts. Raises UserError for a recipe without a model or a corpus's folder."""
    if ask.model is None or ask.data is None:
        raise UserError(f"{ask.name} needs --model MODEL and --data CORPUS:FOLDER, such as --data e2e:FOLDER.")
    spec = parsed(ask.data)
    if spec is not None and not spec.path.exists():
        raise UserError(f"{ask.name} --data {ask.data}: there is no folder {spec.path}.")
    if spec is None or spec.part or not spec.path.is_dir():
        raise UserError(f"{ask.name} --data {ask.data}: give the folder of a corpus, such as e2e:FOLDER.")
    specs = {part: parsed(text) for part, text in expanded({"train": ask.data}).items()}
    if "test" not in specs:
        raise UserError(f"{ask.name} --data {ask.data}: the folder has no test part, on which a recipe's scores are.")
    return spec, specs


def _chooses(ask: Ask, spec: Spec, kind: str, choose: bool) -> bool:
    """Whether answers are chosen among labels. Raises UserError for a corpus that has none."""
    choose = choose or kind == "encoder"
    if choose and scored_by(str(ask.data)):
        chooser = "an encoder" if kind == "encoder" else ask.name
        raise UserError(
            f"{ask.name} --data {ask.data}: {chooser} chooses among labels, and {spec.name} has texts to write. "
            "Give a corpus with labels, such as sst2:FOLDER."
        )
    return choose


def kept(ask: Ask, lines: Sequence[Line], network: int | None) -> list[dict[str, Any]]:
    """As settings hold them, with what the paper has on this corpus; the quick size has the first two.

    Raises UserError for a name of --lines that no line has in its own.
    """
    spec, some = parsed(ask.data or ""), named(ask, lines)
    some = some[:2] if ask.quick else some
    papers = [{} if spec is None else dict(line.paper.get(spec.name, {})) for line in some]
    arms = [asdict(replace(line, arm=_by_network(line.arm, network))) for line in some]
    return [arm | {"paper": paper} for arm, paper in zip(arms, papers, strict=True)]


def named(ask: Ask, lines: Sequence[Line]) -> Sequence[Line]:
    """The lines asked for, in the table's order: all where none is named."""
    kept = chosen(ask, [line.label for line in lines])
    return [one for one in lines if one.label in kept]


def chosen(ask: Ask, labels: Sequence[str]) -> list[str]:
    """Those of the labels that --lines asks for, in their order: all where none is named."""
    low = {label: label.lower() for label in labels}
    for name in ask.lines:
        if labels and not any(name.lower() in label for label in low.values()):
            raise UserError(f"{ask.name} --lines: none has {name!r} in its name. They are: {'; '.join(labels)}.")
    return [label for label in labels if not ask.lines or any(name.lower() in low[label] for name in ask.lines)]


def with_lengths(ask: Ask, lines: Sequence[Line], lengths: Mapping[str, Mapping[str, int]]) -> list[Line]:
    """The lines, where the paper's protocol has prefixes of the published length: by corpus, then by label."""
    corpus = (ask.data or "").partition(":")[0]
    own = lengths.get(corpus, {}) if ask.protocol == "paper" else {}
    return [
        replace(line, label=f"{line.label}: {own[line.label]}", arm=f"prefix:length={own[line.label]}", share=None)
        if line.label in own
        else line
        for line in lines
    ]


def scaled_lora(settings: Settings, arm: str, share: float, scale: float) -> tuple[str, float | None]:
    """An arm that ends in a LoRA, times `scale`, whose rank makes the arm store that share of the parameters; with the
    share where no rank does, which its line then tells."""
    try:
        rank = _size(settings, arm, share)
    except UserError:
        return arm, share
    return f"{arm},rank={rank},alpha={scale * rank}", None


def _size(settings: Settings, arm: str, share: float) -> int:
    from tunescope.methods.text_form import explicit, parse
    from tunescope.trial.budget import solve

    model = on_paper(settings["model"])
    specs, _ = solve(model, parse(arm), round(share * settings["parameters"]), explicit(arm))
    return int(getattr(specs[-1], str(specs[-1].size)))


def units(settings: Settings) -> list[dict[str, Any]]:
    """One a line; what is only shown of it is left out, so that a label may change."""
    return [{key: line[key] for key in OF_UNIT} for line in settings["lines"]]


def parts(settings: Settings) -> "dict[str, Rows]":
    """The corpus's rows, no more of each part than settings["rows"] says, drawn once for all lines and seeds.

    Of a corpus without development rows a tenth of the training rows are, whatever is drawn of these later.
    """
    specs = {part: parsed(text) for part, text in expanded({"train": settings["data"]}).items()}
    found = {part: read(spec) for part, spec in specs.items() if spec is not None}
    if "dev" not in found:
        cut = splits.split(found["train"], None, found["test"], by=("input",))
        notes = (*found["train"].notes, *cut.notes)
        found |= {"train": Rows(cut.train, notes), "dev": Rows(cut.dev, ())}
    most = settings["rows"]
    some = {part: reduced(rows, most.get(part), part, choose=settings["choose"]) for part, rows in found.items()}
    return {part: Rows(some[part], rows.notes) for part, rows in found.items()}


def reduced(
    rows: Sequence[dict[str, Any]], most: int | None, part: str, seed: int = 0, *, choose: bool = False
) -> list[dict[str, Any]]:
    """At most so many rows of train, or so many inputs of another part with all their references, in their order.

    choose: where answers are chosen among labels, each keeps its share, as nearly as whole rows allow.
    """
    names = [str(index) if part == "train" else row["input"] for index, row in enumerate(rows)]
    groups: dict[str, list[str]] = {}
    for name, row in dict(zip(names, rows, strict=True)).items():
        groups.setdefault(str(row["target"]) if choose else "", []).append(name)
    total = sum(map(len, groups.values()))
    if most is None or total <= most:
        return list(rows)
    draw, counts = random.Random(seed), _shares({label: len(own) for label, own in groups.items()}, most)
    kept = {name for label, own in groups.items() for name in draw.sample(own, counts[label])}
    return [row for name, row in zip(names, rows, strict=True) if name in kept]


def _shares(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    """`most` shared out in proportion, what is over to the largest remainders."""
    total = sum(sizes.values())
    counts = {label: size * most // total for label, size in sizes.items()}
    left = sorted(sizes, key=lambda label: (-(sizes[label] * most % total), label))
    return counts | {label: counts[label] + 1 for label in left[: most - sum(counts.values())]}


def too_few(wanted: int, has: int) -> UserError:
    return UserError(f"A subset of {wanted} training rows cannot be drawn from {has}. Give more data.")


def no_labels(name: str, count: int, most: int) -> UserError:
    return UserError(f"{name}: the targets are {count} different texts, no labels; it takes at most {most}.")


def _by_network(arm: str, width: int | None) -> str:
    """A prefix in front of an arm, or an infix, made by a network of that width."""
    first, plus, rest = arm.partition("+")
    method, _, fields = first.partition(":")
    if width is None or method not in ("prefix", "infix"):
        return arm
    return f"{method}:mlp={width}{',' if fields else ''}{fields}{plus}{rest}"


def _module(corpus: str) -> ModuleType:
    return plugins.load(FOLDER, corpus)


def _metrics(module: ModuleType) -> tuple[list[str], list[str]]:
    """Those of the corpus that can run here, and why the others cannot; of one with labels, exact matches.

    Raises UserError where the first cannot, which decides.
    """
    from tunescope.data.metric import find_metric

    first, *others = getattr(module, "METRICS", ("exact_match",))
    find_metric(first).needs()
    runs, lacking = [first], []
    for name in others:
        try:
            find_metric(name).needs()
            runs.append(name)
        except UserError as reason:
            lacking.append(str(reason))
    return runs, list(dict.fromkeys(lacking))


def _languages(model: str, module: ModuleType) -> dict[str, str]:
    """Those of the corpus, for a model whose tokenizer marks them."""
    from tunescope.tasks.prompts import languages

    sides = getattr(module, "SIDES", None)
    if sides is None or not languages.has_languages(load_tokenizer(model)):
        return {}
    return dict(zip(languages.SIDES, sides, strict=True))
