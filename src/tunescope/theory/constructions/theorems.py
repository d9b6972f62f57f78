"""The paper's three statements, each a case of one network (Petrov et al. 2024, arXiv:2310.19698, section 3)."""

import torch

from tunescope.theory.constructions.network import Network


def sequences(
    vocabulary: int, outputs: int, *, dtype: torch.dtype = torch.float64, temperature: float | None = None
) -> Network:
    """Theorem 1: a network that, for each of the V^N sequences, has one virtual token that makes it write it.

    `network.virtual_token(target)` takes (..., N); `network.generate(virtual, empty prompt)` starts from the virtual
    token alone. The N numbers of the virtual token are the N tokens; position i opens gate i. A hard token in its
    place can be one of V, so at most V sequences.

    Raises UserError beyond V = 2^p.
    """
    return Network(vocabulary, 0, outputs, dtype=dtype, temperature=temperature)


def maps(vocabulary: int, *, dtype: torch.dtype = torch.float64, temperature: float | None = None) -> Network:
    """Theorem 2: a network that, for each of the V^V maps of a token to a token, has one virtual token that makes it
    answer x with m(x).

    `network.virtual_token(target)` takes (..., V), with -1 where the map is not defined. The V numbers of the virtual
    token are m(0) ... m(V - 1); the token x opens gate x.

    Raises UserError beyond V = 2^p.
    """
    return Network(vocabulary, 1, 1, dtype=dtype, temperature=temperature)


def responses(
    vocabulary: int,
    inputs: int,
    outputs: int,
    *,
    dtype: torch.dtype = torch.float64,
    temperature: float | None = None,
) -> Network:
    """The extension: for every function of n_X tokens to n_Y tokens, one virtual token that makes the network it.

    `network.virtual_token(target)` takes (..., V, ..., V, n_Y), with -1 where the function is not defined. For
    n_X > 1 a number packs V^(n_X - 1) digits base V, so the float type ends it early: V^(V^(n_X - 1)) <= 2^p, that is
    V up to 13, 4, 3, 2, 2 for n_X = 2 ... 6 in float64.

    Raises UserError beyond that, with the largest that fits.
    """
    return Network(vocabulary, inputs, outputs, dtype=dtype, temperature=temperature)
