"""The parts of the constructions: a head that looks at one position, a ReLU choice, ReLU digits, a linear decoder.

A gate is a vector that is 0 at the one open place and -1 elsewhere. One-hot vectors minus 1 rather than one-hot
vectors: an open gate adds nothing to an integer, so nothing is lost to rounding.
"""

import math

import torch
from torch import Tensor, nn


class LookAt(nn.Module):
    """One head of causal softmax attention: the value at one absolute position.

    A standard head: the query is a bias (T, 0, ...), the key picks from the position's gate the coordinate of the
    wanted position, the score is their product over sqrt(head_width), and later keys are masked. Where the wanted
    position is still to come, the weights are even over what there is.
    """

    query: Tensor
    key: Tensor

    def __init__(self, position: int, n_positions: int, temperature: float, head_width: int, dtype: torch.dtype):
        super().__init__()
        query, key = torch.zeros(head_width, dtype=dtype), torch.zeros(head_width, n_positions, dtype=dtype)
        query[0], key[0, position] = temperature, 1
        self.register_buffer("query", query)
        self.register_buffer("key", key)

    def forward(self, places: Tensor, values: Tensor) -> Tensor:
        """places (n, n_positions), the gates of the positions; values (batch, n, d) -> (batch, n, d)."""
        n = len(places)
        scores = (places @ self.key.T) @ self.query / math.sqrt(len(self.query))  # by key: all queries are equal
        later = torch.ones(n, n, dtype=torch.bool, device=places.device).triu(1)
        weights = scores.expand(n, n).masked_fill(later, -torch.inf).softmax(-1)
        return weights @ values


class Choose(nn.Module):
    """The one number whose gates are all open: the sum of ReLU(number + gain * gates), one hidden ReLU layer.

    Exact for integers from 0 to `gain`; 0 where every number has a closed gate.
    """

    def __init__(self, gain: int):
        super().__init__()
        self.gain = float(gain)

    def forward(self, numbers: Tensor, gates: Tensor) -> Tensor:
        """numbers and gates, broadcast to (..., m) -> (..., 1)."""
        return torch.relu(numbers + self.gain * gates).sum(-1, keepdim=True)


class Digits(nn.Module):
    """The digits of an integer held in a float, by ReLU steps alone: no floor, no remainder.

    From the top digit down, the digit of base^j counts the multiples c base^j that the number reaches, c < base. One
    step is 1 - ReLU(1 - ReLU(x - (c base^j - 1))): 1 from the multiple on, 0 from one below it down. Then the digit
    times base^j leaves the number. So a digit is two plain ReLU layers of width base - 1 with a residual connection,
    and all numbers in it are integers no larger than the one given.
    """

    below: Tensor
    powers: Tensor

    def __init__(self, base: int, count: int, dtype: torch.dtype):
        super().__init__()
        powers = [base**j for j in reversed(range(1, count))]
        below = torch.tensor([[c * power - 1 for c in range(1, base)] for power in powers], dtype=dtype)
        self.register_buffer("below", below.reshape(len(powers), base - 1))
        self.register_buffer("powers", torch.tensor(powers, dtype=dtype))

    def forward(self, number: Tensor) -> Tensor:
        """number (..., 1), an integer below base^count -> (..., count), the last digit (of base^0) first."""
        found: list[Tensor] = []
        for below, power in zip(self.below, self.powers, strict=True):
            digit = (1 - torch.relu(1 - torch.relu(number - below))).sum(-1, keepdim=True)
            number = number - power * digit
            found.insert(0, digit)
        return torch.cat([number, *found], -1)


class Decode(nn.Module):
    """Logits whose largest is the token: a linear map of the two digits (base ceil(sqrt V)) of its number.

    For digits z and token i with digits z_i, the logit z_i . z - |z_i|^2 / 2 is |z|^2 / 2 - |z_i - z|^2 / 2, so the
    nearest wins, by 1/2. (With z itself instead of two digits the logits reach V^2 and float32 ends at V of some
    thousands; with digits, centred on 0, they stay below V and every type goes as far as its integers.)
    """

    rows: Tensor
    bias: Tensor

    def __init__(self, vocabulary: int, dtype: torch.dtype):
        super().__init__()
        base = math.isqrt(vocabulary - 1) + 1
        self.centre = base // 2
        self.digits = Digits(base, 2, dtype)
        token = torch.arange(vocabulary)
        rows = torch.stack([token % base, token // base], -1) - self.centre
        self.register_buffer("rows", rows.to(dtype))
        self.register_buffer("bias", (rows.square().sum(-1).double() / -2).to(dtype))

    def forward(self, number: Tensor) -> Tensor:
        """number (..., 1) -> (..., V)."""
        return nn.functional.linear(self.digits(number) - self.centre, self.rows, self.bias)
