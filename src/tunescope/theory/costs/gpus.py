"""GPUs by name, in the numbers of their makers' data sheets: dense products, without sparsity."""

from __future__ import annotations

from tunescope.errors import UserError
from tunescope.theory.costs.machine import Machine

PRODUCTS, MOVING = 0.4, 0.6  # shares of the peaks that are attained, on all alike: docs/scale.md says whence
# operations a second in bfloat16 (0 where there is none) and in float32 without TF32, bytes a second, bytes
SHEETS: dict[str, tuple[float, float, float, float]] = {
    "T4": (0, 8.1e12, 320e9, 16e9),
    "V100": (0, 15.7e12, 900e9, 32e9),
    "L4": (121e12, 30.3e12, 300e9, 24e9),
    "A10": (125e12, 31.2e12, 600e9, 24e9),
    "L40S": (362e12, 91.6e12, 864e9, 48e9),
    "RTX4090": (165e12, 82.6e12, 1008e9, 24e9),
    "A100-40GB": (312e12, 19.5e12, 1555e9, 40e9),
    "A100-80GB": (312e12, 19.5e12, 2039e9, 80e9),
    "H100": (989e12, 67e12, 3350e9, 80e9),
    "H200": (989e12, 67e12, 4800e9, 141e9),
}


def gpu(name: str, precision: str = "auto") -> tuple[Machine, str]:
    """One of them, and what its products are in: "bfloat16" where it has that and nothing else is asked, or "float32".

    Raises:
        UserError: it is not known, or has no bfloat16.
    """
    known = {one.lower(): one for one in SHEETS}
    if name.lower() not in known:
        raise UserError(f"--gpu {name}: it is one of {', '.join(SHEETS)}.")
    name = known[name.lower()]
    half, single, bandwidth, memory = SHEETS[name]
    if precision == "bfloat16" and not half:
        raise UserError(f"A {name} has no products in bfloat16. Type: --precision float32")
    chosen = "bfloat16" if half and precision != "float32" else "float32"
    peak = half if chosen == "bfloat16" else single
    return Machine(name, peak, PRODUCTS, bandwidth, MOVING, memory, memory), chosen
