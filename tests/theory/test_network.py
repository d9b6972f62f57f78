"""What makes it a causal transformer, the temperature, and what it refuses."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from reference.constructions import Dense, paper_decode, paper_sequence

from tunescope.errors import UserError
from tunescope.theory import constructions
from tunescope.theory.constructions import bounds


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, below: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(below, shape, generator=seeded(seed))


@pytest.mark.parametrize(
    ("V", "n_x", "n_y"), [(5, 0, 3), (5, 1, 1), (4, 1, 3), (3, 2, 2), (2, 4, 2), (3, 3, 1)], ids=str
)
def test_it_is_a_plain_transformer_of_dense_matrices(V: int, n_x: int, n_y: int) -> None:
    network = constructions.responses(V, n_x, n_y)
    virtual = network.virtual_token(random(7, *(V,) * n_x, n_y, below=V))
    tokens = random(7, n_x + n_y - 1, below=V, seed=1)
    dense = Dense(V, n_x, n_y, network.temperature)
    torch.testing.assert_close(network(virtual, tokens), dense(virtual, tokens), rtol=0, atol=0)


@pytest.mark.parametrize("n_x", [0, 1, 2, 3])
def test_a_later_token_never_changes_an_earlier_output(n_x: int) -> None:
    V, n_y = 3, 4
    network = constructions.responses(V, n_x, n_y, temperature=0.7)  # soft attention: every visible key counts
    virtual = (
        torch.rand(5, network.width, dtype=torch.float64, generator=seeded(2)) * 20 * network.levels
    )  # and none is cut off
    tokens = random(5, n_x + n_y - 1, below=V)
    whole = network(virtual, tokens)
    for cut in range(n_x + n_y - 1):
        changed = tokens.clone()
        changed[:, cut:] = (tokens[:, cut:] + 1) % V
        assert torch.equal(network(virtual, changed)[:, : cut + 1], whole[:, : cut + 1])
        torch.testing.assert_close(network(virtual, tokens[:, :cut]), whole[:, : cut + 1], rtol=0, atol=1e-12)
        if cut < n_x:  # and the change is seen from there on
            assert not torch.equal(
                network.numbers(virtual, changed)[:, cut + 1 :], network.numbers(virtual, tokens)[:, cut + 1 :]
            )


@pytest.mark.parametrize("dtype", bounds.DTYPES, ids=str)
def test_a_row_alone_equals_the_row_in_a_batch(dtype: torch.dtype) -> None:
    network = (
        constructions.responses(3, 2, 2, dtype=dtype)
        if dtype.itemsize > 2
        else constructions.responses(2, 2, 2, dtype=dtype)
    )
    virtual = network.virtual_token(random(11, *(network.vocabulary,) * 2, 2, below=network.vocabulary))
    tokens = random(11, 3, below=network.vocabulary)
    whole = network(virtual, tokens)
    assert whole.dtype == dtype and whole.shape == (11, 4, network.vocabulary)
    for row in range(11):
        assert torch.equal(network(virtual[row : row + 1], tokens[row : row + 1])[0], whole[row])


def test_a_wider_head_needs_a_higher_temperature_and_gets_it() -> None:
    target = random(20, 6, below=9)
    for width in (1, 16, 64):
        network = constructions.Network(9, 0, 6, head_width=width)
        assert network.temperature == pytest.approx(math.sqrt(width) * math.log(8 * 5 * 9 * 2**53))
        assert constructions.verify(network, target).fraction == 1
    narrow = constructions.Network(9, 0, 6).temperature
    assert (
        constructions.verify(constructions.Network(9, 0, 6, head_width=400, temperature=narrow), target).fraction < 0.1
    )


@pytest.mark.parametrize("head_width", [1, 16])
@pytest.mark.parametrize("dtype", bounds.DTYPES, ids=str)
def test_at_the_computed_temperature_a_copy_is_exact(dtype: torch.dtype, head_width: int) -> None:
    """The weight on the wanted key is 1 and not nearly 1, in the type itself, with every other key in view."""
    V, N = 2 ** bounds.precision(dtype) if dtype.itemsize == 2 else 50257, 50
    network = constructions.Network(V, 0, N, dtype=dtype, head_width=head_width)
    target = random(4, N, below=V)
    virtual = network.virtual_token(target)
    numbers = network.numbers(virtual, random(4, N - 1, below=V))
    assert torch.equal(numbers[..., 0], target.to(dtype))


@pytest.mark.parametrize(("V", "N"), [(94, 20), (94, 100), (2**20, 30)])
def test_a_temperature_too_small_fails(V: int, N: int) -> None:
    """At T = ln((n - 1) L) the leak at the last position is 1 / (L + 1) of a token number near L: nearly one token."""
    target = torch.full((1, N), V - 1)
    assert constructions.verify(constructions.sequences(V, N), target).fraction == 1
    network = constructions.sequences(V, N, temperature=math.log((N - 1) * V))
    assert constructions.verify(network, target).fraction == 0


def test_the_paper_s_fixed_temperature_fails_at_a_hundred_tokens_and_the_computed_one_does_not() -> None:
    V, N = 94, 100
    targets = random(10, N, below=V)
    right = [[a == b for a, b in zip(paper_sequence(t, V, 50), t, strict=True)] for t in targets.tolist()]
    share = torch.tensor(right, dtype=torch.float64).mean().item()
    assert 0.2 < share < 0.45
    assert all(paper_sequence(t, V, 50) == t for t in random(5, 20, below=V).tolist())  # the published setting
    network = constructions.sequences(V, N)
    assert constructions.verify(network, targets).fraction == 1
    as_theirs = constructions.sequences(V, N, temperature=50 / math.sqrt(N))
    assert constructions.verify(as_theirs, targets).fraction == 0


def test_the_paper_s_decoder_ends_in_float32_where_ours_goes_on() -> None:
    tokens = torch.arange(5000)
    theirs = paper_decode(torch.relu(tokens.float() / 5000 + 1 - 1), 5000)
    assert 0.05 < (theirs != tokens).double().mean() < 0.5
    network = constructions.sequences(5000, 1, dtype=torch.float32)
    assert constructions.verify(network, tokens[:, None]) == constructions.Check(5000, 5000, None)


def test_verify_names_the_first_wrong_answer() -> None:
    network = constructions.responses(3, 2, 2)
    target = random(4, 3, 3, 2, below=3)
    virtual = network.virtual_token
    shifted = target.clone()
    shifted[2, 1, 0] = (target[2, 1, 0] + 1) % 3
    shifted[3, 2, 2, 1] = (target[3, 2, 2, 1] + 1) % 3
    network.virtual_token = lambda given: virtual(target)  # type: ignore[method-assign]
    got = constructions.verify(network, shifted)
    assert (got.asked, got.right, got.fraction) == (36, 34, 34 / 36)
    assert got.first_wrong == constructions.Wrong(
        2, (1, 0), tuple(shifted[2, 1, 0].tolist()), tuple(target[2, 1, 0].tolist())
    )
    one = constructions.verify(network, shifted, torch.tensor([[2, 2]]))
    assert (one.asked, one.right) == (4, 3) and one.first_wrong.target == 3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: constructions.responses(14, 2, 1),
            "vocabulary=14 with inputs=2 does not pack exactly in float64: the largest vocabulary that fits is 13; "
            "a vocabulary of 14 fits 1 input token.",
        ),
        (
            lambda: constructions.responses(3, 4, 1, dtype=torch.float32),
            "vocabulary=3 with inputs=4 does not pack exactly in float32: the largest vocabulary that fits is 2; "
            "a vocabulary of 3 fits 3 input tokens.",
        ),
        (
            lambda: constructions.sequences(50257, 3, dtype=torch.bfloat16),
            "vocabulary=50257 with inputs=0 does not pack exactly in bfloat16: "
            "the largest vocabulary that fits is 256.",
        ),
        (
            lambda: constructions.responses(2, 10**6, 1),
            "vocabulary=2 with inputs=1000000 does not pack exactly in float64: the largest vocabulary that fits is 1; "
            "a vocabulary of 2 fits 6 input tokens.",
        ),
        (
            lambda: constructions.maps(5, dtype=torch.int64),
            "A construction was asked for in int64; it takes: float16, bfloat16, float32, float64.",
        ),
        (lambda: constructions.maps(0), "A construction was asked for with vocabulary=0; it is at least 1."),
        (lambda: constructions.sequences(4, 0), "A construction was asked for with outputs=0; it is at least 1."),
        (lambda: constructions.responses(4, -1, 1), "A construction was asked for with inputs=-1; it is at least 0."),
        (
            lambda: constructions.maps(4).virtual_token([0, 1, 2]),
            "A target of this network has the shape (..., 4, 1); it came as (3,).",
        ),
        (
            lambda: constructions.maps(3).virtual_token([0, 1, 3]),
            "A target holds token ids, or -1 where the output does not matter, from 0 to 2; 3 is among them.",
        ),
        (lambda: constructions.maps(2).virtual_token([0.5, 1.0]), "A target holds token ids; it came as float32."),
        (
            lambda: constructions.sequences(3, 2)(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[3]])),
            "The network reads token ids, from 0 to 2; 3 is among them.",
        ),
        (
            lambda: constructions.sequences(3, 2)(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0, 0]])),
            "The network takes virtual tokens (batch, 2) and at most 1 tokens (batch, n); "
            "they came as (1, 2) and (1, 2).",
        ),
        (
            lambda: constructions.maps(3).generate(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[0, 0]])),
            "A prompt of this network is (batch, 1); it came as (1, 2).",
        ),
        (
            lambda: constructions.maps(3).float()(torch.zeros(1, 3), torch.tensor([[0]])),
            "The network was built for float64, is in float32 and got virtual tokens in float32; "
            "build it with the dtype it is to run in.",
        ),
        (
            lambda: constructions.verify(constructions.maps(3), [-1, -1, -1]),
            "verify was given targets that ask for nothing: every output is -1, or there is no prompt.",
        ),
    ],
)
def test_it_says_what_it_refuses(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(says)}$"):
        make()
