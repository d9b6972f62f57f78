"""The cost model's predictions against measurements: two numbers are calibrated, on the frozen GPT-2 shape alone.

Calibrated in every round: operations a second, on its training step without anything tuned, and bytes a second, on its
decoding step. Everything else is predicted from shapes. A ratio is predicted / measured within a round.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from typing import Any

import torch

import tunescope as ts
from benchmarks.bank import made
from benchmarks.decoding import STEPS, text_before
from benchmarks.tools.measuring import Check, Ratio, Result, compared
from benchmarks.tools.memory import megabytes
from benchmarks.tools.models import IGNORED, MODELS, Scale, floor_step, labelled_step, plain_step, text
from benchmarks.tools.predicting import Case, predictions
from tunescope.attachment.guards.activations import lean_activations
from tunescope.theory.costs import methods, serving, shapes, training
from tunescope.theory.costs.methods import Method
from tunescope.theory.costs.shapes import Shape

WITHIN = 0.2
RANK, LABELLED = 8, 10
FLOOR = Method("none")
MAPS = ("attn.q", "attn.k", "attn.v", "attn.o", "ffn.in", "ffn.out")
TUNED: dict[str, Any] = {
    "soft prompt of 200": ts.Soft(length=200),
    "prefix of 10": ts.Prefix(length=10),
    "prefix of 200": ts.Prefix(length=200),
    "prefix of 1000": ts.Prefix(length=1000),
    "LoRA on q, v": ts.LoRA(rank=RANK),
    "LoRA on all maps": ts.LoRA(rank=RANK, sites=MAPS),
    "adapter of 64": ts.Adapter(bottleneck=64),
    "full tuning": ts.Full(),
}
PARTIAL = f"prefix of 50, {LABELLED} positions labelled"
SERVED: dict[str, tuple[Any, bool]] = {  # whether every row has its own
    "a prefix of 1000": (ts.Prefix(length=1000), False),
    "a prefix of 20 each": (ts.Prefix(length=20), True),
    "a LoRA each on q, v": (ts.LoRA(rank=RANK), True),
    "a LoRA each on all maps": (ts.LoRA(rank=RANK, sites=MAPS), True),
}
KEPT = ("floor", "soft prompt of 200", "LoRA on all maps")  # whose memory is measured
ROUNDS = {"full": 3, "tiny": 1}
PREFILL_ROWS = 4


def run(scale: Scale) -> Result:
    ratios = []
    for family in MODELS:
        others = family != "gpt2"  # whose floor is not calibrated on
        for group, names in (
            (tuning, (*TUNED, PARTIAL, *(["floor"] if others else []))),
            (decoding, (*SERVED, "prefill", *(["bare"] if others else []))),
        ):
            floor, bare = tuning("gpt2", "floor", scale), decoding("gpt2", "bare", scale)
            for name in names:  # one at a time: what others hold is memory that the system must find anew
                ratios += predictions(family, {name: group(family, name, scale)}, floor, bare, ROUNDS[scale.name])
        if scale.name == "full" or not others:
            ratios += kept(family, scale)
    settings = {
        "rows": scale.rows,
        "tokens": scale.tokens,
        "rows decoded": scale.rows_decoded,
        "tokens before": scale.tokens_before,
        "rows of prefill": PREFILL_ROWS,
        "within": WITHIN,
    }
    return Result(
        ratios, [Check(f"{row.case}, {row.quantity}", abs(row.ratio - 1), WITHIN) for row in ratios], settings
    )


def batch_of(name: str, scale: Scale) -> training.Batch:
    each = min(LABELLED, scale.tokens - 1) if name == PARTIAL else scale.tokens
    return training.Batch(scale.rows, scale.tokens, scale.rows * each)


def spec_of(name: str) -> Any:
    return ts.Prefix(length=50) if name == PARTIAL else TUNED[name]


def method_of(name: str) -> Method:
    return FLOOR if name == "floor" else methods.of(spec_of(name))


@cache
def _first(family: str, scale: Scale) -> Any:
    return MODELS[family](scale)


def model_of(family: str, scale: Scale) -> Any:
    """A model of its own over parameters that all share, which nothing here changes: so many would not fit."""
    first = _first(family, scale)
    return deepcopy(first, {id(parameter): parameter for parameter in first.parameters()})


@cache
def _read(family: str, scale: Scale) -> Any:
    """The cache of every row's text, read by the bare model: what is in it makes no difference to the time."""
    model = _first(family, scale)
    with torch.no_grad():
        return model(input_ids=text_before(model, scale), use_cache=True, logits_to_keep=1).past_key_values


def tuning(family: str, name: str, scale: Scale) -> Case:
    """A training step, without the optimiser's update, of the frozen model or of something tuned on it."""
    model = model_of(family, scale)
    shape, batch, method = shapes.of(model.config), batch_of(name, scale), method_of(name)
    step = _step(model, name, scale)
    return Case(
        _with_activations_of_attach(model, step) if name == "floor" else step,
        lambda one: one.seconds(training.operations(method, shape, batch), training.moved(method, shape, batch)),
    )


def _step(model: Any, name: str, scale: Scale) -> Callable[[], None]:
    ids = text(scale, model.config.vocab_size)
    if name == "floor":
        return floor_step(model, ids, ids)
    tuned = ts.attach(model, spec_of(name)).train()
    if name != PARTIAL:
        return plain_step(model, tuned.parameters, ids, ids)
    labels = torch.full_like(ids, IGNORED)
    each = batch_of(name, scale).labelled // scale.rows
    labels[:, -each:] = ids[:, -each:]
    return labelled_step(model, tuned.parameters, ids, labels)


def _with_activations_of_attach(model: Any, step: Callable[[], None]) -> Callable[[], None]:
    """The speed is calibrated on such as all that is predicted has them."""

    def leaner() -> None:
        with lean_activations(model):
            step()

    return leaner


def decoding(family: str, name: str, scale: Scale) -> Case:
    """STEPS tokens of every row, bare or with artifacts; or the prefill of some rows, logits at the last position."""
    model = model_of(family, scale)
    shape = shapes.of(model.config)
    if name == "prefill":
        return _prefill(model, shape, scale)
    spec, each = SERVED.get(name, (None, False))
    method = FLOOR if spec is None else methods.of(spec)
    rows = scale.rows_decoded
    load = serving.Load(rows, scale.tokens_before, rows if each else 1, cache_passes=3)
    return Case(
        _decoder(model, spec, each, scale, deepcopy(_read(family, scale))),
        lambda one: (
            STEPS * serving.decode_seconds(method, shape, load, one) + serving.gather_seconds(method, shape, load, one)
        ),
    )


def _prefill(model: Any, shape: Shape, scale: Scale) -> Case:
    ids = text_before(model, scale)[:PREFILL_ROWS]
    load = serving.Load(*ids.shape)

    def prefill() -> None:
        with torch.no_grad():
            model(input_ids=ids, use_cache=True, logits_to_keep=1)

    return Case(prefill, lambda one: serving.prefill_seconds(FLOOR, shape, load, one))


def _decoder(model: Any, spec: Any, each: bool, scale: Scale, cache: Any) -> Callable[[], None]:
    members = {str(row): made(model, spec, row) for row in range(scale.rows_decoded)} if each else {}
    methods_on = (ts.Bank(members),) if each else (spec,) if spec is not None else ()
    tuned = ts.attach(model, *methods_on) if methods_on else None  # it detaches when it is let go of
    token = text_before(model, scale)[:, :1]

    def decode() -> None:
        by_row = tuned.rows(list(members)) if tuned is not None and members else nullcontext()
        with torch.no_grad(), by_row:
            for _ in range(STEPS):
                model(input_ids=token, past_key_values=cache, use_cache=True)
        cache.crop(-STEPS)

    return decode


def kept(family: str, scale: Scale) -> list[Ratio]:
    """Megabytes of a training step beside the model's weights: activations, logits, and the gradients.

    In use, where what is freed is returned at once, and resident, where the C library keeps of it what it likes.
    """
    found = []
    for name in KEPT if scale.name == "full" else KEPT[:1]:
        shape = shapes.of(MODELS[family](scale).config)
        method = method_of(name)
        memory = training.memory(method, shape, batch_of(name, scale))
        gradients = 4 * methods.trained(method, shape)
        predicted = [(memory.activations + memory.logits + gradients) / 2**20]
        for what, returned in (("in use", True), ("resident", False)):
            measured = [megabytes("costs", f"{family}, {name}", scale.name == "tiny", returned=returned)]
            sides = {"predicted": predicted, "measured": measured}
            found.append(compared(f"{family}, {name}, {what}", "predicted", "measured", sides, None, "memory"))
    return found


def step(variant: str, scale: Scale) -> Callable[[], None]:
    """The training step of "FAMILY, NAME", for the measurement of its memory."""
    family, _, name = variant.partition(", ")
    return _step(MODELS[family](scale), name, scale)
