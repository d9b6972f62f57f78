"""A training step of a frozen model that is sharded over devices (FSDP2), each with a part of the rows."""

from __future__ import annotations

from tunescope.errors import UserError
from tunescope.theory.costs import training
from tunescope.theory.costs.machine import USABLE, Machine
from tunescope.theory.costs.methods import TRAINED_BYTES, Method, trained
from tunescope.theory.costs.shapes import Shape, at_least
from tunescope.theory.costs.training import Batch, Memory

GATHERED = 2  # layers that are whole at once: the one at work, and the next one on its way


def memory(method: Method, shape: Shape, batch: Batch, devices: int) -> Memory:
    """Bytes on each device, at the largest moment.

    weights: a part of all, two whole layers, and the tables, which stay whole from their use on (torch's FSDP2 keeps
    what belongs to the root until the backward pass). The artifact is whole on every device.

    Raises UserError for full tuning, which is not sharded here.
    """
    if method.kind == "full":
        raise UserError(
            "The cost model shards a frozen model: full tuning changes parameters, of which each has a part."
        )
    own = part(batch, devices)
    tables = shape.head * (1 if shape.tied else 2) + shape.positions * shape.width
    layer = (shape.parameters - tables) / shape.layers
    return Memory(
        weights=shape.bytes * (shape.parameters / devices + GATHERED * layer + tables),
        trained=TRAINED_BYTES * trained(method, shape),
        activations=training.activations(method, shape, own),
        logits=training.memory(method, shape, own).logits,
    )


def seconds(method: Method, shape: Shape, batch: Batch, machine: Machine) -> float:
    """Of a step: the larger of each device's work and of gathering all weights twice, which goes on meanwhile.

    A device takes in all parts but its own (Zhao et al. 2023, arXiv:2304.11277, section 3); for a soft prompt again, as
    it has a pass of its own. Averaging the artifact's gradients comes behind.
    """
    one = Machine(
        machine.name,
        machine.peak_flops,
        machine.share,
        machine.peak_bandwidth,
        machine.bandwidth_share,
        machine.memory,
        machine.host_memory,
    )
    work = training.seconds(method, shape, part(batch, machine.devices), one)
    passes = 2 if method.kind == "soft" else 1
    taken = 2 * passes * shape.bytes * shape.parameters * (machine.devices - 1) / machine.devices
    return max(work, taken / machine.link if taken else 0.0) + machine.all_reduce(4 * trained(method, shape))


def fits(method: Method, shape: Shape, batch: Batch, machine: Machine) -> bool:
    """Whether a step has room on every device of the machine."""
    return memory(method, shape, batch, machine.devices).total <= USABLE * machine.memory


def part(batch: Batch, devices: int) -> Batch:
    """Each device's rows, as many as the one with most has."""
    at_least(1, batch, ("rows",))
    rows = -(-batch.rows // devices)
    return Batch(rows, batch.tokens, -(-batch.labelled * rows // batch.rows), batch.checkpointing)
