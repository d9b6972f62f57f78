"""Memory and time of serving: decoding where every row may have its own artifact, and prefill."""

from __future__ import annotations

from dataclasses import dataclass

from tunescope.errors import UserError
from tunescope.theory.costs.machine import USABLE, Machine
from tunescope.theory.costs.methods import Method, added, hot_bytes, stored_bytes
from tunescope.theory.costs.shapes import Shape, at_least


@dataclass(frozen=True)
class Load:
    """A batch that is decoded: rows, tokens in each row's cache, and how many different artifacts the rows have.

    cache_passes: how often a step passes over the cache; 1 where it is read in place, 3 in transformers' growing cache,
    which copies it at every step.
    """

    rows: int
    tokens: int
    different: int = 1
    cache_passes: int = 1

    def __post_init__(self) -> None:
        at_least(1, self, ("rows", "tokens", "different", "cache_passes"))
        if self.different > self.rows:
            raise UserError(f"Load(different={self.different}): {self.rows} rows have at most {self.rows} artifacts.")


def gathered_bytes(method: Method, shape: Shape, load: Load) -> int:
    """Of the artifacts as the batch reads them: shared by all rows where there is one, else a copy for each row."""
    return hot_bytes(method, shape) * (1 if load.different == 1 else load.rows)


def memory(method: Method, shape: Shape, load: Load) -> float:
    """Bytes of weights, cache, the batch's artifacts (hot and gathered) and one step's logits in float32."""
    cache = load.rows * load.tokens * shape.per_token * shape.bytes
    copies = gathered_bytes(method, shape, load) if load.different > 1 else 0  # one alone is read where it lies
    artifacts = load.different * hot_bytes(method, shape) + copies
    return shape.bytes * shape.parameters + cache + artifacts + 4 * load.rows * shape.vocabulary


def fits(method: Method, shape: Shape, load: Load, machine: Machine) -> int:
    """How many artifacts stay hot beside the model and the batch; 0 where these alone are too much."""
    stored_bytes(method, shape)  # refuses what has no artifact
    hot = hot_bytes(method, shape)
    room = machine.usable - (memory(method, shape, load) - load.different * hot)
    return max(0, int(room // hot))


def fits_host(method: Method, shape: Shape, machine: Machine) -> int:
    """How many artifacts, as they are stored, the host's memory holds."""
    return int(USABLE * machine.host_memory // stored_bytes(method, shape))


def decode_seconds(method: Method, shape: Shape, load: Load, machine: Machine) -> float:
    """Of one token for every row: weights, cache and artifacts are read once, and each row's products done."""
    heads = shape.attended * (load.tokens + method.length)
    work = load.rows * (2 * (shape.linear + shape.head + added(method, shape)) + heads)
    cache = load.cache_passes * load.rows * load.tokens * shape.per_token * shape.bytes
    weights = shape.bytes * (shape.linear + shape.head)
    own = machine.seconds(work, weights + cache + gathered_bytes(method, shape, load))
    return own + 2 * shape.layers * machine.all_reduce(load.rows * shape.width * shape.bytes)


def gather_seconds(method: Method, shape: Shape, load: Load, machine: Machine) -> float:
    """Of copying each row's artifact side by side, read and written, once for a batch; 0 where all share one."""
    return machine.seconds(0, 2 * gathered_bytes(method, shape, load)) if load.different > 1 else 0.0


def prefill_seconds(method: Method, shape: Shape, load: Load, machine: Machine) -> float:
    """Of the rows' whole text at once, contexts as keys and values, logits at each row's last token alone."""
    texts = load.rows * load.tokens
    heads = shape.attended * texts * (load.tokens + method.length)
    work = 2 * texts * (shape.linear + added(method, shape)) + heads + 2 * load.rows * shape.head
    moved = shape.bytes * (shape.linear + shape.head + texts * shape.per_token) + gathered_bytes(method, shape, load)
    return machine.seconds(work, moved) + 2 * shape.layers * machine.all_reduce(texts * shape.width * shape.bytes)
