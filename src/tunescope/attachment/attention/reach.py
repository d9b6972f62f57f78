"""Which modules of a model call our attention function, found by running it: no list of names to trust."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.function import NAME, STATE, LayerState
from tunescope.attachment.attention.own import find_own, reference, stood_in
from tunescope.attachment.attention.trial_inputs import TARGET, trial_inputs, tried
from tunescope.attachment.guards.checkpointing import unwrapped
from tunescope.attachment.guards.four_bit import unpacked
from tunescope.attachment.whole import through
from tunescope.errors import UserError
from tunescope.methods.artifact import LayerShape
from tunescope.models.anatomy import Anatomy, anatomy, refuse_half

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Reached:
    """One attention module: its name ("decoder.0.cross"), itself, the shape of its keys and values, its query heads.

    The module is held weakly, so that a model goes when nobody else holds it.
    """

    name: str
    place: weakref.ref[nn.Module]
    shape: LayerShape
    n_heads: int

    @property
    def module(self) -> nn.Module:
        found = self.place()
        assert found is not None  # its model is gone
        return found


class _Call(NamedTuple):
    """What the probe saw of one attention module: the lengths of queries and keys, and what `Reached` keeps."""

    module: nn.Module
    queries: int
    keys: int
    shape: LayerShape
    n_heads: int


#: configs of switched models, which several may share: each with its own attention, and who switched it to what
_SWITCHED: dict[int, tuple[Any, Any, dict[object, str]]] = {}
_REACHED: weakref.WeakKeyDictionary[nn.Module, tuple[Anatomy, tuple[Reached, ...]]] = weakref.WeakKeyDictionary()


def reached(model: PreTrainedModel) -> tuple[Reached, ...]:
    """The attention modules that contexts can stand in, by stack, kind and depth; the model is left as it was.

    Raises UserError for a family that keeps attention to itself, or shares one module over layers, and for a decoder
    that lacks its encoder.
    """
    now = anatomy(model)
    refuse_half(model, now.kind)
    known = _REACHED.get(model)
    if known is None or (known[0] is not now and not _in_use(known[1])):
        known = _REACHED[model] = (now, _probe(model))
    return known[1]


def _in_use(places: tuple[Reached, ...]) -> bool:
    """Whether a context stands in them, or they are looked at: until that is over they are what they were."""
    return any(module is not None and STATE in module.__dict__ for module in (one.place() for one in places))


@contextmanager
def switched(model: PreTrainedModel, to: str = NAME) -> Iterator[None]:
    """Within it, the model's attention is ours, or the one named; afterwards its own again."""
    own = find_own(model.config.model_type)
    if own is not None:
        with stood_in(model, own, to):
            yield
        return
    configs, mark = list(_configs(model)), object()
    for config in configs:
        _SWITCHED.setdefault(id(config), (config, config._attn_implementation, {}))[2][mark] = to
    try:
        with _unwarned():
            model.set_attn_implementation(to)
        yield
    finally:
        for config in configs:
            _, own, others = _SWITCHED[id(config)]
            del others[mark]
            if not others:
                del _SWITCHED[id(config)]
            config._attn_implementation_internal = [own, *others.values()][-1]  # of it alone, and not of its parts


@contextmanager
def _unwarned() -> Iterator[None]:
    """Where transformers cannot switch, it warns; we ask whether it did, and say so ourselves."""
    log = logging.getLogger("transformers.modeling_utils")
    log.addFilter(_is_error)  # a level would have every logger of the process look up its own anew
    try:
        yield
    finally:
        log.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _configs(model: PreTrainedModel) -> list[Any]:
    """The model's config and those of its parts, each of which may have an attention of its own."""
    found: dict[int, Any] = {}
    todo = [one.config for one in model.modules() if hasattr(one, "config")]
    for config in todo:
        if id(config) not in found and hasattr(config, "_attn_implementation"):
            found[id(config)] = config
            todo += [getattr(config, name) for name in config.sub_configs]
    return list(found.values())


@contextmanager
def quick_to_train(model: PreTrainedModel, precision: str) -> Iterator[None]:
    """Within it, attention is ours where torch's is slow to train: in bfloat16 on a CPU, for short rows.

    It stays the family's own where ours would not be the same.
    """
    is_slow = anatomy(model).device.type == "cpu" and precision == "bfloat16"
    with switched(model) if is_slow and _is_reached(model) else nullcontext():
        yield


def _is_reached(model: PreTrainedModel) -> bool:
    try:
        return bool(reached(model))
    except UserError:
        return False


@contextmanager
def resting(model: nn.Module) -> Iterator[None]:
    """Within it, no dropout and no checkpointing; afterwards every module's mode as before."""
    before = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with unpacked(model):
            yield
    finally:
        for module, mode in before:
            module.training = mode


def _probe(model: PreTrainedModel) -> tuple[Reached, ...]:
    calls: list[_Call] = []
    unknown: set[str] = set()

    def keep(module: nn.Module, seen: dict[str, Tensor | None]) -> None:
        query, key, value = seen["query"], seen["key"], seen["value"]
        assert query is not None and key is not None and value is not None
        shape = LayerShape(key.shape[1], key.shape[3], value.shape[3])
        calls.append(_Call(module, query.shape[2], key.shape[2], shape, query.shape[1]))

    modules = list(model.modules())
    own_words = reference(model)  # eager: sdpa may leave some out
    what = "run on a short input to see which attention it calls"
    with tried(model, what), switched(model, own_words), resting(model), torch.no_grad():
        own = run_tiny(model)
    try:
        for module in modules:
            module.__dict__[STATE] = LayerState(keep=keep, unknown=unknown)
        with tried(model, what), switched(model), resting(model), torch.no_grad():
            ours = run_tiny(model)
    finally:
        for module in modules:
            module.__dict__.pop(STATE, None)
    found = _named(model, calls)
    if unknown or (own.device.type != "meta" and (own - ours).abs().max() > rounding(own) * own.abs().max()):
        by_name = f" ({', '.join(sorted(unknown))})" if unknown else ""
        raise UserError(
            f"Family {model.config.model_type!r} gives its attention something that tunescope does not know{by_name}, "
            "and comes out otherwise with tunescope's attention in place: contexts cannot be attached. LoRA at "
            "sites=all-linear, bias and full still can."
        )
    return found


def rounding(states: Tensor) -> float:
    """The share of the largest state that another order of the same sums may make, generously."""
    return 1e-3 if states.dtype in (torch.float32, torch.float64) else 0.2


def run_tiny(model: PreTrainedModel) -> Tensor:
    """(n, width), the last states of a short input's real tokens."""
    given = trial_inputs(model)
    cache = {} if anatomy(model).kind == "encoder" else {"use_cache": False}
    with unwrapped(model):
        out = through(model, lambda: model.base_model(**given, **cache))
    states: Tensor = out[0]
    mask = given.get("attention_mask")
    if mask is None or "decoder_input_ids" in given or states.device.type == "meta":
        return states.flatten(0, 1)
    return states[mask.bool().to(states.device)]  # of a model that is split over GPUs the last has the states


def _named(model: PreTrainedModel, calls: list[_Call]) -> tuple[Reached, ...]:
    family, which = model.config.model_type, anatomy(model).kind
    if not calls:
        raise UserError(
            f"Family {family!r} computes attention by itself: transformers' attention interface does not reach it, so "
            "text, soft, prefix and infix cannot be attached. What needs none still can: LoRA at sites=all-linear, "
            "bias and full."
        )
    if any(count > 1 for count in Counter(id(call.module) for call in calls).values()):
        raise UserError(
            f"Family {family!r} runs one attention module in several layers: a context has no place of its own there."
        )
    found = []
    paths = {module: path for path, module in model.named_modules()}
    lists = {path for path, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    for module, queries, keys, shape, n_heads in calls:
        if which != "encoder-decoder":
            prefix, suffix = which, "self"
        elif queries != TARGET:
            prefix, suffix = "encoder", "self"
        else:
            prefix, suffix = "decoder", "self" if keys == TARGET else "cross"
        at = _layer_index(paths[module], lists)
        found.append(Reached(f"{prefix}.{at}.{suffix}", weakref.ref(module), shape, n_heads))
    told = {place.name for place in found if ".None." not in place.name}
    return tuple(found) if len(told) == len(found) else tuple(_in_turn(found))


def _in_turn(found: list[Reached]) -> Iterator[Reached]:
    """By their turn in the pass, where layers do not tell them apart."""
    depth = Counter[str]()
    for place in found:
        stack, _, block = place.name.split(".")
        yield replace(place, name=f"{stack}.{depth[stack + block]}.{block}")
        depth[stack + block] += 1


def _layer_index(path: str, lists: set[str]) -> int | None:
    """The place of a module's layer in the outermost list that it lies in; None where it lies in none."""
    parts = path.split(".")
    at = next((i for i in range(1, len(parts)) if ".".join(parts[:i]) in lists), None)
    return int(parts[at]) if at is not None and parts[at].isdigit() else None
