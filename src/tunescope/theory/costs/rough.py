"""What a step and a written answer cost of any transformer, by the weights of its maps: for a plan, no more.

`training` and `serving` are exact, and know the layers of gpt2 and llama; this knows no layer, and takes what is usual.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunescope.theory.costs.machine import Machine
from tunescope.theory.costs.methods import TRAINED_BYTES, weight_bytes
from tunescope.theory.costs.training import HEAD_COPIES, UPDATE_PASSES

KEPT = 34  # bytes a token and width that a layer keeps in 16 bits, attention fused (Korthikanti et al. 2022, eq. 2)
LAUNCH = 1e-3  # seconds that a layer's kernels take to be begun in eager torch, however small (assumed)
ROWS = 16  # that are written at once


@dataclass(frozen=True)
class Stack:
    """Layers that tokens pass: weights of all their maps, how many layers, how wide."""

    linear: int
    layers: int
    width: int

    def operations(self, tokens: float, length: float) -> float:
        """Forward, of tokens in rows of that length: two a weight, four a width and hidden pair."""
        return 2 * self.linear * tokens + 4 * self.layers * self.width * tokens * length

    def kept(self, tokens: float, bytes: int, *, checkpointing: bool) -> float:
        """Bytes kept for the backward pass."""
        layer = KEPT / 2 * bytes * self.width * tokens
        return self.layers * bytes * self.width * tokens + layer if checkpointing else self.layers * layer


@dataclass(frozen=True)
class Model:
    """encoder: None of a decoder alone; decoder: None of an encoder alone.

    stored, bytes: of a weight, and of what is computed.
    """

    parameters: int
    vocabulary: int
    encoder: Stack | None
    decoder: Stack | None
    stored: float
    bytes: int

    def passed(self, rows: float, read: float, written: float) -> list[tuple[Stack, float, float]]:
        """The stacks, each with the tokens that pass it and the length of their rows."""
        if self.encoder is not None and self.decoder is not None:
            return [(self.encoder, rows * read, read), (self.decoder, rows * written, read + written)]
        one = self.encoder or self.decoder
        return [] if one is None else [(one, rows * (read + written), read + written)]

    @property
    def layers(self) -> int:
        return sum(one.layers for one in (self.encoder, self.decoder) if one is not None)

    @property
    def head(self) -> int:
        """Weights of the map onto words; none where no words are written."""
        return 0 if self.decoder is None else self.vocabulary * self.decoder.width


@dataclass(frozen=True)
class Step:
    """rows at once, in as many `parts` after one another as there are; tokens read and written of a row, on average."""

    rows: int
    read: float
    written: float
    parts: int = 1
    checkpointing: bool = False


def memory(model: Model, trained: int, step: Step, *, full: bool) -> float:
    """Bytes at the beginning of the backward pass, of the largest part."""
    rows = -(-step.rows // step.parts)
    stacks = model.passed(rows, step.read, step.written)
    kept = sum(one.kept(tokens, model.bytes, checkpointing=step.checkpointing) for one, tokens, _ in stacks)
    logits = 4 * HEAD_COPIES * rows * step.written * model.vocabulary if model.head else 0
    weights = weight_bytes(model.stored, full=full) * model.parameters
    return weights + TRAINED_BYTES * trained + kept + logits


def seconds(model: Model, trained: int, step: Step, machine: Machine, *, full: bool) -> float:
    """Of a step with its update: of products, or of beginning its kernels, whichever is more."""
    stacks = model.passed(step.rows, step.read, step.written)
    forward = sum(one.operations(tokens, length) for one, tokens, length in stacks)
    forward += 2 * model.head * step.rows * step.written
    again = forward if step.checkpointing else 0
    backward = forward * (2 if full else 1)
    products = machine.seconds(forward + again + backward, 4 * UPDATE_PASSES * trained)
    passes = 4 if step.checkpointing else 3
    return max(products, passes * step.parts * model.layers * LAUNCH)


def writing(model: Model, inputs: int, step: Step, beams: int, machine: Machine) -> float:
    """Seconds to write an answer to each input: every token reads all weights once for ROWS inputs."""
    rounds = -(-inputs // ROWS) * step.written
    stack = model.decoder
    if stack is None:
        return inputs / ROWS * max(model.layers * LAUNCH, machine.seconds(2 * model.parameters * ROWS * step.read))
    one = machine.seconds(2 * (stack.linear + model.head) * ROWS * beams, model.stored * model.parameters)
    return rounds * max(one, stack.layers * LAUNCH)
