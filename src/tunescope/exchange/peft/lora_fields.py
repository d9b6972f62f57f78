"""What the configuration of LoRA or (IA)3 says of one module: whether it is meant, of which shape, at which scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import regex
from torch import Tensor

from tunescope.errors import UserError
from tunescope.exchange.peft.config import CONFIG, TENSORS, number

PATIENCE = 1.0  # seconds: a pattern of a foreign file may never end


def check_target(config: Mapping[str, Any], path: str) -> None:
    """UserError for a module that target_modules, as a list, does not name."""
    targets = config.get("target_modules")
    if isinstance(targets, list) and not is_target(config, path):
        named = ", ".join(sorted(map(str, targets)))
        raise UserError(f"{TENSORS}: {path!r} does not belong: target_modules names {named or 'nothing'}.")


def is_target(config: Mapping[str, Any], path: str) -> bool:
    """Whether target_modules, as a list, names the module or the end of its name."""
    targets = config.get("target_modules")
    return isinstance(targets, list) and any(path == one or path.endswith(f".{one}") for one in targets)


def check_shapes(config: Mapping[str, Any], path: str, shape: tuple[int, int], a: Tensor, b: Tensor) -> None:
    """UserError for factors of another rank than the configuration says, or for another map than one of (out, in)."""
    d_out, d_in = shape
    rank = rank_of(config, path)
    if a.shape != (rank, d_in) or b.shape != (d_out, rank):
        raise UserError(
            f"{TENSORS}: {path!r} has lora_A {tuple(a.shape)} and lora_B {tuple(b.shape)}, and should have "
            f"({rank}, {d_in}) and ({d_out}, {rank}): the file was altered, or made for a model of another shape."
        )


def is_feedforward(config: Mapping[str, Any], path: str) -> bool:
    """Whether (IA)3's feedforward_modules names the module, as peft compares: the pattern of all, or an end of it."""
    named = config["feedforward_modules"]
    if isinstance(named, str):
        return _fits(named, path, "feedforward_modules", lead="")
    return any(path.endswith(str(one)) for one in named)


def rank_of(config: Mapping[str, Any], path: str) -> float:
    """The rank that the configuration says of one module, which may be no whole number in an altered one."""
    rank: float = _by_pattern(config, "rank_pattern", path, "r")
    return rank


def scale_of(config: Mapping[str, Any], path: str, rank: float) -> float:
    """What the product of the factors is multiplied with in one module."""
    alpha = float(_by_pattern(config, "alpha_pattern", path, "lora_alpha"))
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _by_pattern(config: Mapping[str, Any], patterns: str, path: str, default: str) -> Any:
    """The value of the first pattern that names the module or the end of its name, else the default field's."""
    for pattern, value in (config.get(patterns) or {}).items():
        if _fits(pattern, path, patterns, lead=r"(.*\.)?"):
            return _positive(value, patterns)
    return number(config, "r") if default == "r" else _positive(config.get(default), default)


def _fits(pattern: str, path: str, field: str, *, lead: str) -> bool:
    """Whether a path is a lead and what a field's pattern says. Raises UserError for no pattern, and an endless one."""
    try:
        return regex.fullmatch(rf"{lead}({pattern})", path, timeout=PATIENCE) is not None
    except regex.error as problem:
        raise UserError(f"{CONFIG}: {field} has {pattern!r}, which is no pattern ({problem}).") from None
    except TimeoutError:
        raise UserError(
            f"{CONFIG}: {field} has {pattern!r}, which takes more than {PATIENCE} s to compare with a name: the "
            "file was altered."
        ) from None


def _positive(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UserError(f"{CONFIG}: {field} has {value!r} and should have a positive number: the file was altered.")
    return value
