"""Memory and time of one training step."""

from __future__ import annotations

from dataclasses import dataclass

from tunescope.errors import UserError
from tunescope.theory.costs.machine import Machine
from tunescope.theory.costs.methods import TRAINED_BYTES, Method, added, sites, trained, weight_bytes
from tunescope.theory.costs.shapes import Shape, at_least

HEAD_COPIES = 3  # in float32 at once: log-probabilities, their gradient, the gradient of the logits
FLASH_BACKWARD = 2.5  # five products for the forward's two (Dao et al. 2022, algorithms 1 and 4)
UPDATE_PASSES = 7  # Adam reads weight, gradient and two moments, and writes all but the gradient
CONTEXT_PASSES = (
    5  # keys and values of a context are copied into every row, read twice, their gradient written and read
)


@dataclass(frozen=True)
class Batch:
    """labelled: positions whose logits are computed, of all rows together. checkpointing: of every layer."""

    rows: int
    tokens: int
    labelled: int
    checkpointing: bool = False

    def __post_init__(self) -> None:
        at_least(1, self, ("rows", "tokens", "labelled"))
        if self.labelled > self.texts:
            raise UserError(f"Batch(labelled={self.labelled}): {self.rows} rows of {self.tokens} have {self.texts}.")

    @property
    def texts(self) -> int:
        """Tokens of all rows."""
        return self.rows * self.tokens


@dataclass(frozen=True)
class Memory:
    """Bytes, of all devices together. trained: numbers, gradients and optimiser state."""

    weights: float
    trained: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        return self.weights + self.trained + self.activations + self.logits


def memory(method: Method, shape: Shape, batch: Batch) -> Memory:
    """At the largest moment, the beginning of the backward pass."""
    return Memory(
        weights=weight_bytes(shape.bytes, full=method.kind == "full") * shape.parameters,
        trained=TRAINED_BYTES * trained(method, shape),
        activations=activations(method, shape, batch),
        logits=4 * HEAD_COPIES * batch.labelled * shape.vocabulary,
    )


def activations(method: Method, shape: Shape, batch: Batch) -> float:
    """Bytes kept for the backward pass, as torch keeps them for transformers' layers with `attach`.

    A frozen map keeps nothing of its input. A soft prompt is run once, as a row of its own, its keys joined to every
    row's. The first layer is counted like the others, though part of it keeps nothing where nothing below is trained.
    Checkpointed layers keep their input, and one at a time all the rest (Chen et al. 2016, arXiv:1604.06174).
    """
    norm = max(shape.bytes, 4) if shape.kind == "llama" else shape.bytes  # an RMS norm works in float32
    inputs = norm * shape.width * (2 if method.kind == "full" and shape.kind == "llama" else 1)  # what a norm keeps
    own = batch.texts * _of_layer(method, shape, inputs)
    if method.kind == "soft":
        own += method.size * _of_layer(Method("none"), shape, inputs, attached=True)
    if method.length:  # keys and values of context and text side by side in every row, and their mask
        joined = batch.rows * method.length
        own += shape.bytes * (joined * shape.per_token / shape.layers + batch.texts * (batch.tokens + method.length))
    tokens = batch.texts + (method.size if method.kind == "soft" else 0)
    last = tokens * inputs + batch.texts * (shape.bytes * shape.width if method.kind == "full" else 0)
    if batch.checkpointing:
        return shape.layers * tokens * shape.bytes * shape.width + own + last
    return shape.layers * own + last


def _of_layer(method: Method, shape: Shape, norm: int, *, attached: bool | None = None) -> float:
    """Bytes a token keeps in one layer: norms, query, key, value, heads, their log-sum-exp, and the feed-forward's.

    A gate keeps three widths (itself, its SiLU, the other map); transformers' tanh GELU is made of parts, which keep
    four, and under `attach` its input alone.
    """
    attached = method.kind != "none" if attached is None else attached
    heads = 2 * (shape.heads + shape.kv_heads) * shape.head_size
    kept = heads + shape.ffn * (3 if shape.kind == "llama" else 1 if attached else 4)
    own = tuple(shape.maps) if method.kind == "full" else sites(method, shape)
    if method.kind == "adapter":
        kept += len(own) * (shape.width + method.size)
    else:  # a map that trains keeps its input, once for those that share it; the heads are kept already
        shared = ({"attn.q", "attn.k", "attn.v"}, {"ffn.in", "ffn.gate"})
        kept += sum(shape.width for group in shared if group & set(own))
        kept += (shape.ffn if "ffn.out" in own else 0) + method.size * len(own)
    return 2 * norm + shape.bytes * kept + 4 * shape.heads


def operations(method: Method, shape: Shape, batch: Batch) -> float:
    """Floating-point operations of a step: two a weight and token forward, two backward, two where a weight trains.

    (Kaplan et al. 2020, arXiv:2001.08361, section 2.1, who count all three.) Attention: `attended` a
    query and key, hidden pairs too, for `attach` gives a mask.
    """
    tokens = batch.texts + (method.size if method.kind == "soft" else 0)
    pairs = batch.texts * (batch.tokens + method.length) + (method.size**2 if method.kind == "soft" else 0)
    attended = shape.attended * pairs
    through, head = 2 * shape.linear * tokens, 2 * shape.head * batch.labelled
    beside = 2 * added(method, shape) * batch.texts
    weights = through + head if method.kind == "full" else 0
    again = through + attended + beside if batch.checkpointing else 0
    return 2 * (through + head) + (1 + FLASH_BACKWARD) * attended + 3 * beside + weights + again


def moved(method: Method, shape: Shape, batch: Batch) -> int:
    """Bytes that a context adds to a step, beside its products: its keys and values in every row."""
    return CONTEXT_PASSES * batch.rows * method.length * shape.per_token * shape.bytes


def seconds(method: Method, shape: Shape, batch: Batch, machine: Machine) -> float:
    """Of a step with its update. Reading weights is not counted: products hide it from some hundreds of tokens on.

    Tensor parallelism: two all-reduces a layer forward and two backward (Shoeybi et al. 2019, arXiv:1909.08053, 3).
    """
    update = 4 * UPDATE_PASSES * trained(method, shape)
    own = machine.seconds(operations(method, shape, batch), moved(method, shape, batch) + update)
    reduces = shape.layers * (6 if batch.checkpointing else 4)
    return own + reduces * machine.all_reduce(batch.texts * shape.width * shape.bytes)
