"""Which options a model needs for its memory, on paper: said by `tunescope check` before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunescope.comparison.arms import DEFAULT
from tunescope.errors import UserError
from tunescope.models import anatomy
from tunescope.models.load_options import QUANTISED
from tunescope.theory.costs import methods, shapes, shards, training
from tunescope.theory.costs.machine import USABLE
from tunescope.theory.costs.methods import FLOAT32, Method
from tunescope.theory.costs.shapes import Shape
from tunescope.theory.costs.training import Batch
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FULL = "full"
TOKENS = 512  # of a row, where the model takes as many
USUAL = Method("lora", 8, ("attn.q", "attn.v"))
Way = dict[str, Any]  # fields of the plan
PLAIN = Plan()


def lines(plan: Plan, config: PreTrainedConfig, longest: int | None = None) -> Iterator[str]:
    """What a training step takes of each device as it was typed, and the command of the first way that has room.

    Of the arms the one that takes most; where none are named, also of full tuning, which is one of the usual. Nothing
    of full tuning where the weights are quantised or sharded, for there it is refused.

    longest: tokens of the data's longer rows, where they were read; nothing is said of no more than without.
    """
    try:
        shape = shapes.of(config, FLOAT32 if _says_float32(config) else 2)
    except UserError:
        kind = getattr(config, "model_type", None)
        if longest is None:
            yield f"memory on paper: not known for models of type {kind!r}; what a step takes is measured below"
        return
    rows = plan.settings.batch_size
    most = int(getattr(config, "max_position_embeddings", None) or max(TOKENS, longest or 0))
    tokens = min(longest or TOKENS, most)
    if longest is not None and tokens <= min(TOKENS, most):
        return
    batch = Batch(-(-rows // plan.settings.accumulate), tokens, rows)
    arms = plan.arms or DEFAULT[anatomy.kind(config)]
    apart = [arms] if plan.arms else [[arm for arm in arms if arm != FULL], [FULL]]  # unasked full hides no LoRA
    for some in apart:
        tuned = [arm for arm in some if not (_stays(plan) and any(one.kind == FULL for one in _methods(arm)))]
        if tuned:
            yield _line(plan, largest(tuned, shape, batch), shape, batch)


def _stays(plan: Plan) -> bool:
    """Whether no weight of the model can be changed."""
    return plan.load in QUANTISED or (plan.processes > 1 and plan.parallel == "fsdp")


def _line(plan: Plan, method: Method, shape: Shape, batch: Batch) -> str:
    room, devices, where = _room(plan)
    typed = typed_way(plan)
    size = f"{batch.rows} rows of {batch.tokens} tokens"
    most = taken(typed, method, shape, batch) / 1e9
    head = f"memory on paper: at most {most:.3g} GB for a step of {method.kind}, were it {size}"
    has = f"{where} has {room / 1e9:.3g} GB to spare"
    way = first_way(method, shape, batch, room, devices, plan)
    if way is None:
        less = " --arms without full needs less." if method.kind == FULL else ""
        kept = ", with what was typed" if typed else ""
        return f"{head}; {has}, which no way that is known has room in{kept}. A smaller --batch-size needs less.{less}"
    if way == typed:
        return f"{head}; {has}: no {'other ' if typed else ''}option is needed"
    from tunescope.trial.command import command

    fits = taken(way, method, shape, batch)
    return f"{head}; {has}. With {fits / 1e9:.3g} GB, type: {command(replace(plan, **way), here=True)}"


def _room(plan: Plan) -> tuple[float, int, str]:
    """`here`, of what a step has there: processes beside a GPU share the memory, and a model that is spread has all."""
    room, devices, where = here(plan.device)
    if plan.device_map and devices > 1:
        return devices * room, devices, f"{devices} times {where}"
    if plan.processes > 1 and not plan.device.startswith("cuda"):
        return room / plan.processes, devices, f"each of {plan.processes} processes on {where}"
    return room, devices, where


def typed_way(plan: Plan) -> Way:
    """What the plan itself asks of it."""
    every = {name: getattr(plan, name) for name in ("load", "gradient_checkpointing", "processes")}
    several = {"parallel": plan.parallel} if plan.processes > 1 else {}
    return {name: value for name, value in every.items() if value} | several


def first_way(method: Method, shape: Shape, batch: Batch, room: float, devices: int, plan: Plan = PLAIN) -> Way | None:
    """The first way that has room on each device; None where none has. The quickest stand first.

    plan: what was typed, which every way keeps, and adds to only what can be asked beside it.
    """
    saving: Way = {"gradient_checkpointing": True}
    ways: list[Way] = [{}, saving]
    if method.kind != FULL:
        ways += [{"load": "bfloat16"}, {"load": "bfloat16", **saving}] if shape.bytes == FLOAT32 else []
        several: list[Way] = [{"processes": devices}, {"processes": devices, **saving}] if devices > 1 else []
        ways += [*several, {"load": "8bit", **saving}, {"load": "4bit", **saving}]
    typed = typed_way(plan)
    added = [typed | way for way in ways if typed.items() <= (typed | way).items() and _can_be_asked(plan, way)]
    return next((way for way in added if taken(way, method, shape, batch) <= room), None)


def _can_be_asked(plan: Plan, way: Way) -> bool:
    try:
        check(replace(plan, **way))
    except UserError:
        return False
    return True


def taken(way: Way, method: Method, shape: Shape, batch: Batch) -> float:
    """Bytes of a device. Weights in fewer bits: the maps' alone, for tables and norms stay as they are."""
    batch = replace(batch, checkpointing="gradient_checkpointing" in way)
    if way.get("load") == "bfloat16":
        shape = replace(shape, bytes=2)
    processes = way.get("processes", 1)
    if processes > 1 and way.get("parallel", "fsdp") == "fsdp":
        return shards.memory(method, shape, batch, processes).total
    total = training.memory(method, shape, shards.part(batch, processes)).total
    bits = {"8bit": 8, "4bit": 4.5}.get(way.get("load", ""))  # and a scale for each 64 of them
    return total if bits is None else total - shape.linear * (shape.bytes - bits / 8)


def largest(arms: Sequence[str], shape: Shape, batch: Batch) -> Method:
    """Of the arms the one whose step takes most; a usual LoRA where the cost model knows none."""
    found = {}
    for method in (one for arm in arms for one in _methods(arm)):
        with suppress(UserError):  # of a place that the cost model does not know
            found[method] = training.memory(method, shape, batch).total
    return max(found, key=lambda method: found[method], default=USUAL)


def _methods(arm: str) -> Sequence[Method]:
    from tunescope.methods.text_form import parse

    try:
        return [methods.of(spec) for spec in parse(arm)]
    except UserError:  # of zero-shot, demonstrations and searches, which train nothing
        return ()


def here(device: str) -> tuple[float, int, str]:
    """Bytes that a step may take on a device, how many such devices there are, and what they are called.

    Of a GPU what is free, and what this process has of it. One that is named by its number is the only one.
    """
    import torch

    from tunescope.system import machine

    found = machine.device_named(device)
    if found.type != "cuda":
        return machine.free_memory() * USABLE, 1, "this machine"
    room = torch.cuda.mem_get_info(found)[0] + torch.cuda.memory_reserved(found)
    count = torch.cuda.device_count() if found.index is None else 1
    return room * USABLE, count, torch.cuda.get_device_name(found)


def _says_float32(config: PreTrainedConfig) -> bool:
    return str(getattr(config, "dtype", None)).removeprefix("torch.") in ("None", "float32")
