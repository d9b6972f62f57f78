"""A machine in stated numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tunescope.errors import UserError
from tunescope.theory.costs.shapes import at_least

USABLE = 0.9  # of the memory; the rest is for the driver, the allocator and what a kernel needs while it runs


@dataclass(frozen=True)
class Machine:
    """One device, or several that share every layer (tensor parallelism).

    peak_flops: operations a second in the precision of the weights, of one device; share: the part of it that products
    attain. peak_bandwidth and bandwidth_share: bytes a second of its memory, likewise. memory, host_memory: bytes; a
    CPU has the same memory as both. link: bytes a second from a device to the others; latency: seconds of an all-reduce
    of nothing.
    """

    name: str
    peak_flops: float
    share: float
    peak_bandwidth: float
    bandwidth_share: float
    memory: float
    host_memory: float
    devices: int = 1
    link: float = 0.0
    latency: float = 0.0

    def __post_init__(self) -> None:
        at_least(1, self, ("peak_flops", "peak_bandwidth", "memory", "host_memory", "devices"))
        at_least(0, self, ("link", "latency"))
        for name in ("share", "bandwidth_share"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"Machine({name}={getattr(self, name)}): a share is above 0 and at most 1.")
        if self.devices > 1 and not self.link:
            raise UserError(
                f"Machine(devices={self.devices}): several devices need link=, bytes a second between them."
            )

    @property
    def usable(self) -> float:
        return USABLE * self.devices * self.memory

    def seconds(self, operations: float, moved: float = 0.0) -> float:
        """Of products and of bytes read or written, none of it at the same time: at most twice what a roofline says.

        The roofline is the larger of the two terms (Williams et al. 2009); their sum is nearer on our CPU.
        """
        products = operations / (self.devices * self.peak_flops * self.share)
        return products + moved / (self.devices * self.peak_bandwidth * self.bandwidth_share)

    def all_reduce(self, size: float) -> float:
        """Seconds of a ring all-reduce: each device sends 2 (n - 1) / n of the bytes (Patarasuk & Yuan 2009)."""
        if self.devices == 1:
            return 0.0
        return self.latency + 2 * (self.devices - 1) / self.devices * size / self.link
