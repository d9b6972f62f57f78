"""What a recipe on a model and a corpus would take on a named GPU, line by line, before anything is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tunescope.attachment.initial_artifacts import base_of
from tunescope.errors import UserError
from tunescope.models.load import load_tokenizer, model_name, on_paper
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Recipe, Settings, check
from tunescope.theory.costs import rough
from tunescope.theory.costs.gpus import gpu
from tunescope.theory.costs.machine import Machine
from tunescope.trial.demos.spec import NAME as DEMOS
from tunescope.trial.dev_rows import early_count

if TYPE_CHECKING:
    from transformers import PreTrainedModel

COUNTED = 500  # rows whose tokens are counted
BYTES = {"bfloat16": 2, "float32": 4}
LOADED = {"bfloat16": 2, "8bit": 1, "4bit": 0.56}  # and a scale for each 64 weights
HEADS = ("line", "trained", "memory", "a step", "runs", "time")


@dataclass(frozen=True)
class Rows:
    """Of a corpus: how many rows of train, distinct inputs of dev and test, and tokens read and written of one."""

    train: int
    dev: int
    test: int
    read: float
    written: float


@dataclass(frozen=True)
class Taken:
    """What a line takes: parameters trained, bytes at a time, seconds of a step, runs, seconds of all of them."""

    trained: int
    memory: float
    step: float
    runs: int
    seconds: float


def lines(ask: Ask, recipe: Recipe, name: str) -> Iterator[str]:
    """A line of text for each of the recipe's, then what all of them take on that GPU.

    Weights are never loaded: of the model the config is read, of the corpus the rows. What is assumed is said.

    Raises:
        UserError: the recipe is not of a model and a corpus, or the GPU is not known.
    """
    check(ask, recipe)
    if "data" not in recipe.TAKES or "accumulate" not in recipe.TAKES:
        raise UserError(f"--check is for recipes whose lines are tuned on a corpus, and {ask.name} is none.")
    made = recipe.settings(ask)
    (machine, precision), rows = gpu(name, ask.precision), _rows(made)
    yield (
        f"{ask.name} on one {machine.name}, in {precision}: rows of {rows.read:.0f} tokens read and {rows.written:.0f} "
        f"written on average, {rows.train:,} to train on, {rows.test:,} inputs to be tested"
    )
    known, refused = list[tuple[str, Taken]](), list[str]()
    own_dev = getattr(recipe, "own_dev", lambda *_: 0)
    for unit in recipe.units(made):
        try:
            of_unit = replace(rows, dev=own_dev(made, unit) or rows.dev)
            known.append((_named(made, unit), _taken(made, unit, of_unit, machine, BYTES[precision])))
        except UserError as problem:
            refused.append(f"{_named(made, unit)}: {problem}")
    yield from _table([HEADS, *(_row(*one) for one in known)])
    yield from refused
    hours = sum(one.seconds for _, one in known) / 3600
    most = max((one.memory for _, one in known), default=0.0)
    has = f"{machine.name} has {machine.usable / 1e9:.3g} GB to spare"
    yield f"in all {_time(hours * 3600)}; at most {most / 1e9:.3g} GB at a time: {has}"
    if most > machine.usable:
        yield (
            "What does not fit needs --accumulate, --gradient-checkpointing, --load, --device-map auto with several "
            "GPUs, or one with more memory."
        )
    yield (
        "On paper, within a factor of two or three: 40 % of the peak in products, or 1 ms a layer and pass where that "
        "is more; no row is padded, no rate past the end of a grid is tried, and no run ends early."
    )


def _named(made: Settings, unit: Mapping[str, Any]) -> str:
    line = next(one for one in made["lines"] if all(one[key] == unit[key] for key in corpus_table.OF_UNIT))
    part = f", {line['part']}" if line["part"] else ""
    base = f"{model_name(made['bases'][unit['base']]['model'])}: " if "bases" in made else ""
    return f"{base}{line['label']}{part}"


def _rows(made: Settings) -> Rows:
    """Counted by the model's tokenizer."""
    parts = corpus_table.parts(made)
    tokenizer = load_tokenizer(made["model"])
    some = list(parts["train"])[:COUNTED]
    read = fmean(len(tokenizer(str(row["input"]))["input_ids"]) for row in some)
    written = fmean(len(tokenizer(str(row["target"]))["input_ids"]) for row in some)
    dev, test = (len({row["input"] for row in parts[part]}) for part in ("dev", "test"))
    return Rows(len(parts["train"]), dev, test, read, 1 if made["choose"] else written)


def _taken(made: Settings, unit: Mapping[str, Any], rows: Rows, machine: Machine, bytes: int) -> Taken:
    """Raises UserError where the arm is refused."""
    own = published.with_steps(made | (made["bases"][unit["base"]] if "bases" in made else {}), unit)
    model, course = on_paper(own["model"]), own["course"]
    trained, about, full = _trained(model, own, unit), _model(model, own, bytes), unit["arm"] == "full"
    saving = own.get("gradient_checkpointing", False)
    step = rough.Step(course["batch_size"], rows.read, rows.written, course["accumulate"], saving)
    one = rough.seconds(about, trained, step, machine, full=full)
    chosen = own["seeds"] * own.get("subsets", 1)  # of which each is tested
    runs = 0 if _is_shown(unit) else _trials(course) + chosen - 1
    steps = corpus_line.training(course, rows.train).steps
    scored = [rough.writing(about, inputs, step, course["beams"], machine) for inputs in _scored(own, rows)]
    testing = chosen * rough.writing(about, rows.test, step, course["beams"], machine)
    seconds = runs * (steps * one + sum(scored)) + testing
    return Taken(trained, rough.memory(about, trained, step, full=full), one, runs, seconds)


def _scored(made: Settings, rows: Rows) -> list[int]:
    """Of how many development inputs each score of a run is that goes to its end."""
    training, share = corpus_line.training(made["course"], rows.train), published.dev_share(made["protocol"])
    steps, every, early = training.steps, training.eval_every, rows.dev
    if share is not None:
        early = early_count(rows.dev, steps, training.batch_size, every, share, made["choose"])
    return [early] * -(-steps // every) + [rows.dev] * (early < rows.dev)


def _trained(model: PreTrainedModel, made: Settings, unit: Mapping[str, Any]) -> int:
    from tunescope.methods.text_form import explicit, parse
    from tunescope.trial.budget import count, solve

    arm = published.begun(unit["arm"])
    share = unit["share"]
    if _is_shown(unit):
        return 0
    if share is None:
        return count(model, parse(arm)).trained
    return solve(model, parse(arm), round(share * made["parameters"]), explicit(arm))[1].trained


def _is_shown(unit: Mapping[str, Any]) -> bool:
    """Whether it is demonstrations alone, of which nothing is trained; their own tokens are not counted."""
    return bool(unit["arm"].partition(":")[0] == DEMOS)


def _trials(course: Mapping[str, Any]) -> int:
    """The rates that are tried; those past an end of a grid are not counted."""
    rates: int = len(course["rates"]) or course["trials"]
    return rates


def _model(model: PreTrainedModel, made: Settings, bytes: int) -> rough.Model:
    """Its maps counted: tables of embeddings and the map onto words apart."""
    from torch import nn

    base = base_of(model, None)
    tables = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)}
    head = model.get_output_embeddings()
    tables |= {id(head.weight)} if head is not None else set()
    config, kind = model.config, base.kind
    inside = {id(one) for one in model.get_encoder().parameters()} if kind == "encoder-decoder" else set()
    maps = [one for one in model.parameters() if one.ndim >= 2 and id(one) not in tables]
    first, last = (sum(one.numel() for one in maps if (id(one) in inside) == is_in) for is_in in (True, False))
    width, layers = config.hidden_size, config.num_hidden_layers
    deep = getattr(config, "decoder_layers", None) or getattr(config, "num_decoder_layers", None) or layers
    encoder = {"encoder": rough.Stack(last, layers, width), "encoder-decoder": rough.Stack(first, layers, width)}
    decoder = None if kind == "encoder" else rough.Stack(last, deep, width)
    stored = LOADED.get(made.get("load", ""), 2 if "16" in str(config.dtype) else 4)
    return rough.Model(model.num_parameters(), config.vocab_size, encoder.get(kind), decoder, stored, bytes)


def _row(name: str, taken: Taken) -> tuple[str, ...]:
    sizes = (f"{taken.trained:,}", f"{taken.memory / 1e9:.3g} GB", f"{taken.step * 1e3:.3g} ms")
    return name, *sizes, str(taken.runs), _time(taken.seconds)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
