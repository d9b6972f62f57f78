"""Every target and every prompt of small vocabularies, and random ones of large; the oracle is the target itself."""

import itertools

import pytest
import torch
from torch import Tensor

from tunescope.theory import constructions

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
every_type = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def all_rows(V: int, n: int) -> Tensor:
    """(V^n, n)"""
    return torch.tensor(list(itertools.product(range(V), repeat=n))).reshape(-1, n)


def random(*shape: int, below: int) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(0))


def written(network: constructions.Network, targets: Tensor, prompt: tuple[int, ...]) -> Tensor:
    """What every target's virtual token makes of one prompt, by a greedy loop of the test's own, over full logits."""
    virtual = network.virtual_token(targets)
    tokens = torch.tensor(prompt, dtype=torch.long).expand(len(virtual), len(prompt))
    for _ in range(network.outputs):
        tokens = torch.cat([tokens, network(virtual, tokens)[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens[:, len(prompt) :]


@every_type
@pytest.mark.parametrize(("V", "N"), [(4, 4), (5, 3), (1, 3), (2, 9), (7, 1)])
def test_one_virtual_token_writes_any_sequence(V: int, N: int, dtype: torch.dtype) -> None:
    targets = all_rows(V, N)
    assert torch.equal(written(constructions.sequences(V, N, dtype=dtype), targets, ()), targets)


@every_type
@pytest.mark.parametrize("V", [1, 2, 4, 5])
def test_one_virtual_token_makes_any_map(V: int, dtype: torch.dtype) -> None:
    targets = all_rows(V, V)
    network = constructions.maps(V, dtype=dtype)
    given = targets if V > 1 else targets[..., None]  # with one token only the shape cannot tell
    got = torch.cat([written(network, given, (x,)) for x in range(V)], 1)
    assert torch.equal(got, targets)


@every_type
@pytest.mark.parametrize(
    ("V", "n_x", "n_y"), [(2, 1, 2), (3, 1, 2), (2, 2, 1), (2, 2, 2), (2, 3, 1), (1, 3, 2)], ids=str
)
def test_one_virtual_token_makes_any_function_of_many_tokens_to_many(
    V: int, n_x: int, n_y: int, dtype: torch.dtype
) -> None:
    targets = all_rows(V, V**n_x * n_y).reshape(-1, *(V,) * n_x, n_y)  # all of them: V^(V^n_x n_y), at most 729
    network = constructions.responses(V, n_x, n_y, dtype=dtype)
    for prompt in itertools.product(range(V), repeat=n_x):
        assert torch.equal(written(network, targets, prompt), targets[(slice(None), *prompt)])


def test_every_function_of_two_ternary_digits() -> None:
    targets = all_rows(3, 9).reshape(-1, 3, 3, 1)
    assert constructions.verify(constructions.responses(3, 2, 1), targets) == constructions.Check(
        asked=3**9 * 9, right=3**9 * 9, first_wrong=None
    )


LARGEST = [
    (torch.float64, [(13, 2), (4, 3), (3, 4), (2, 5), (2, 6)]),
    (torch.float32, [(8, 2), (3, 3), (2, 4), (2, 5)]),
    (torch.float16, [(4, 2), (2, 3), (2, 4)]),
    (torch.bfloat16, [(4, 2), (2, 3), (2, 4)]),
]


@pytest.mark.parametrize(("dtype", "V", "n_x"), [(dtype, *pair) for dtype, pairs in LARGEST for pair in pairs], ids=str)
def test_the_largest_that_fits_is_exact(dtype: torch.dtype, V: int, n_x: int) -> None:
    targets = random(20, *(V,) * n_x, 3, below=V)
    targets[0], targets[1] = V - 1, 0  # the largest number of all, and the least
    network = constructions.responses(V, n_x, 3, dtype=dtype)
    for prompt in random(20, n_x, below=V).tolist():
        assert torch.equal(written(network, targets, tuple(prompt)), targets[(slice(None), *prompt)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("N", "batch"), [(20, 4), (400, 1)])
def test_any_sequence_over_the_vocabulary_of_gpt2(N: int, batch: int, dtype: torch.dtype) -> None:
    targets = random(batch, N, below=50257)
    network = constructions.sequences(50257, N, dtype=dtype)
    got = network.generate(network.virtual_token(targets), torch.zeros(batch, 0, dtype=torch.long))
    assert torch.equal(got, targets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_any_map_of_the_vocabulary_of_gpt2(dtype: torch.dtype) -> None:
    target, prompts = random(50257, below=50257), random(32, 1, below=50257)
    network = constructions.maps(50257, dtype=dtype)
    virtual = network.virtual_token(target).expand(32, -1)
    assert torch.equal(network.generate(virtual, prompts)[:, 0], target[prompts[:, 0]])


def test_a_partial_map_is_right_where_it_is_defined() -> None:
    targets = all_rows(4, 4) - 1  # -1 ... 2: every partial map of four tokens
    network = constructions.responses(3, 2, 1)
    cut = torch.full((256, 3, 3, 1), -1)
    cut.view(256, 9)[:, [0, 2, 4, 7]] = targets
    defined = int((targets >= 0).sum())
    assert constructions.verify(network, cut) == constructions.Check(asked=defined, right=defined, first_wrong=None)
    for k, prompt in enumerate([(0, 0), (0, 2), (1, 1), (2, 1)]):
        got = written(network, cut, prompt)[:, 0]
        assert torch.equal(got[targets[:, k] >= 0], targets[:, k][targets[:, k] >= 0])
