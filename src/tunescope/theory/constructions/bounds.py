"""What a float type holds exactly, and the temperature that makes the constructions exact in it."""

import math

import torch

from tunescope.errors import UserError

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def name(dtype: torch.dtype) -> str:
    """The name of a type without its module: float64."""
    return str(dtype).removeprefix("torch.")


def precision(dtype: torch.dtype) -> int:
    """The significant bits p: every integer up to 2^p is exact. 11, 8, 24, 53 for float16, bfloat16, float32, float64.

    Raises UserError for any other type.
    """
    if dtype not in DTYPES:
        raise UserError(f"A construction was asked for in {name(dtype)}; it takes: {', '.join(map(name, DTYPES))}.")
    return 1 - int(math.log2(torch.finfo(dtype).eps))


def digits(vocabulary: int, inputs: int) -> int:
    """How many outputs, as digits base V, stand in one number of the virtual token: V^(inputs - 1), at least 1."""
    return int(vocabulary ** max(inputs - 1, 0))


def fits(vocabulary: int, inputs: int, dtype: torch.dtype) -> bool:
    """Whether V^digits <= 2^p: every packed number is then an integer that the type holds exactly."""
    p = precision(dtype)
    if vocabulary == 1:
        return True
    return inputs <= p and digits(vocabulary, inputs) <= p and vocabulary ** digits(vocabulary, inputs) <= 2**p


def largest_vocabulary(inputs: int, dtype: torch.dtype) -> int:
    """The largest V that fits so many input tokens: 2^p for none or one; 13 for two in float64."""
    if inputs <= 1:
        return int(2 ** precision(dtype))
    vocabulary = 1
    while fits(vocabulary + 1, inputs, dtype):
        vocabulary += 1
    return vocabulary


def levels(vocabulary: int, inputs: int, dtype: torch.dtype) -> int:
    """L = V^digits, the count of values that one number of the virtual token takes: 0 to L - 1.

    Raises UserError, with the largest that fits, if the type cannot hold them.
    """
    if fits(vocabulary, inputs, dtype):
        return int(vocabulary ** digits(vocabulary, inputs))
    short = max((n for n in range(1, 8) if fits(vocabulary, n, dtype)), default=0)
    also = f"; a vocabulary of {vocabulary} fits {short} input token{'s' * (short > 1)}" if short and inputs > 1 else ""
    raise UserError(
        f"vocabulary={vocabulary} with inputs={inputs} does not pack exactly in {name(dtype)}: the largest "
        f"vocabulary that fits is {largest_vocabulary(inputs, dtype)}{also}."
    )


def temperature(levels: int, keys: int, head_width: int, dtype: torch.dtype) -> float:
    """T = sqrt(k) ln(8 (n - 1) L 2^p), enough for n keys, heads of width k, L levels and p significant bits.

    Every head has score 0 at the key it wants and -T / sqrt(k) at the n - 1 others (fewer, with the causal mask), so
    these get at most e = (n - 1) exp(-T / sqrt(k)) of its weight together: e L 2^p <= 1/8.

    In floats the result is exact. e < 2^-p / 8, so the weight on the wanted key rounds to 1, and with it an integer is
    copied as it is, because the content of all other keys is 0. A gate is opened by such a copy too: its value is not
    0 but at least -e, and times its gain (L for the first input; V for each other, together less) at least -2^-p / 8,
    a quarter of half the spacing below 1: it is lost in the sum with an integer from 1 on, and the ReLU cuts it off at
    0. From there on all numbers are integers of at most p bits. The slack, a factor 4 (1.38 in the exponent), covers
    the rounding of the score itself.

    In real numbers it is enough too. A number enters the digits with an error under 3 L e; taking digits multiplies
    it by less than L, since a step has slope 1 and a digit is put back with its power, L / V at most (without packing:
    the decoder's sqrt(V)). The decoder reads 3 L^2 e <= 3/8 < 1/2, for L <= 2^p, as the right token.

    It is sufficient, not least: the tests show that T = sqrt(k) ln((n - 1) L) is too small.
    """
    return math.sqrt(head_width) * math.log(8 * max(keys - 1, 1) * levels * 2 ** precision(dtype))
