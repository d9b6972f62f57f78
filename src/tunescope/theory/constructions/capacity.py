"""How many completions one virtual token can select in a float type; a hard token can select V at most."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tunescope.theory.constructions import bounds
from tunescope.theory.constructions.network import Network


@dataclass(frozen=True)
class Capacity:
    """What one number of a virtual token is good for, in one float type. All computed, from p and the format.

    levels: 2^p, how many values the construction tells apart in one number, and so the largest vocabulary of
        `sequences` and `maps`. That they are all told apart is measured in the tests: in float16 and bfloat16 with
        every bit pattern, in float32 with all 2^24 levels (up to the logits; their ends and a sample with them), in
        float64 with a sample.
    values: the finite values of the type. No construction can select more than values^width completions with one
        virtual token of `width` numbers, because there are no more virtual tokens.
    vocabularies: the largest V for n_X = 0, 1, 2, ... 7 inputs; it ends at 1, where there is nothing to choose.
    """

    dtype: torch.dtype
    levels: int
    values: int
    vocabularies: tuple[int, ...]

    def bits(self, width: int) -> float:
        """log2 of the completions that `sequences` selects with `width` numbers: levels^width, one token a number."""
        return width * math.log2(self.levels)

    def most_bits(self, width: int) -> float:
        """log2 of values^width, which no construction exceeds."""
        return width * math.log2(self.values)


def finite_values(dtype: torch.dtype) -> int:
    """How many finite values a float type has, 0 and -0 as one: 65,279 for bfloat16, 63,487 for float16."""
    exponents = 2 ** (torch.finfo(dtype).bits - bounds.precision(dtype)) - 1  # of which one, all ones, is no number
    return int(2 * exponents * 2 ** (bounds.precision(dtype) - 1) - 1)


def capacities() -> dict[torch.dtype, Capacity]:
    """The capacity of every type that the constructions take."""
    return {
        dtype: Capacity(
            dtype,
            levels=2 ** bounds.precision(dtype),
            values=finite_values(dtype),
            vocabularies=tuple(bounds.largest_vocabulary(inputs, dtype) for inputs in range(8)),
        )
        for dtype in bounds.DTYPES
    }


def every_value(dtype: torch.dtype) -> Tensor:
    """All finite values of a type of 16 bits, (finite_values + 1,): 0 and -0 both."""
    values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    return values[values.isfinite()]


def count_outputs(network: Network, virtual: Tensor, *, chunk: int = 4096) -> int:
    """How many different answers a network gives to the virtual tokens given: measured, by running it.

    Args:
        network: one without inputs (`sequences`), so that the virtual token alone decides.
        virtual: (m, width), any numbers, not only those of `virtual_token`.
    """
    prompt = torch.zeros(len(virtual), 0, dtype=torch.long, device=virtual.device)
    parts = zip(torch.split(virtual, chunk), torch.split(prompt, chunk), strict=True)
    return len(torch.unique(torch.cat([network.generate(*part) for part in parts]), dim=0))
