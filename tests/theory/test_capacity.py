"""How many outputs one number selects: all values of the small types, all levels of float32, a sample of float64."""

import itertools
from pathlib import Path

import pytest
import torch

from tunescope.theory import constructions
from tunescope.theory.constructions import layers
from tunescope.theory.constructions.capacity import every_value

SMALL = [torch.float16, torch.bfloat16]


def test_the_table() -> None:
    got = constructions.capacities()
    assert {dtype: row.levels for dtype, row in got.items()} == {
        torch.float16: 2048,
        torch.bfloat16: 256,
        torch.float32: 2**24,
        torch.float64: 2**53,
    }
    for dtype, row in got.items():  # the definition, by exact integers, in place of our search
        for inputs, vocabulary in enumerate(row.vocabularies):
            digits = [1, 1, *(vocabulary**k for k in range(1, 7))][inputs]
            more = [1, 1, *((vocabulary + 1) ** k for k in range(1, 7))][inputs]
            assert vocabulary**digits <= row.levels < (vocabulary + 1) ** more
        assert row.bits(3) == pytest.approx(3 * torch.tensor(float(row.levels)).log2().item())
        assert row.bits(1) < row.most_bits(1) <= torch.finfo(dtype).bits
    assert got[torch.float64].vocabularies == (2**53, 2**53, 13, 4, 3, 2, 2, 1)


def test_the_table_in_the_documentation_is_this_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    rows = {cells[0]: cells[1:] for line in page.splitlines() if len(cells := line.strip("| ").split(" | ")) == 10}
    for dtype, row in constructions.capacities().items():
        name, p = str(dtype).removeprefix("torch."), row.levels.bit_length() - 1
        levels = f"{row.levels:,}" if p < 53 else "2^53"
        largest = [str(vocabulary) for vocabulary in row.vocabularies[2:7]]
        assert rows[name] == [str(p), levels, *largest, f"{row.bits(1):.0f}", f"{row.most_bits(1):.2f}"]


@pytest.mark.parametrize("dtype", [*SMALL, torch.float32, torch.float64], ids=str)
def test_the_levels_are_the_integers_that_the_type_holds(dtype: torch.dtype) -> None:
    top = constructions.capacities()[dtype].levels
    near = [1, 2, 3, top // 2 - 1, top // 2 + 1, top - 1, top]
    assert [int(torch.tensor(n).to(dtype).item()) for n in near] == near
    assert int(torch.tensor(top + 1).to(dtype).item()) != top + 1


@pytest.mark.parametrize("dtype", [pytest.param(SMALL[0], marks=pytest.mark.slow), SMALL[1]], ids=str)
def test_every_value_of_a_small_type_as_a_virtual_token(dtype: torch.dtype) -> None:
    """Exhaustive: no value, integer or not, gives anything but one of the 2^p outputs, and all of these are given."""
    values = every_value(dtype)
    row = constructions.capacities()[dtype]
    assert len(values) == row.values + 1 == len(set(values.tolist())) + 1  # 0 and -0
    network = constructions.sequences(row.levels, 1, dtype=dtype)
    assert constructions.count_outputs(network, values[:, None]) == row.levels
    assert constructions.verify(network, torch.arange(row.levels)[:, None]).fraction == 1


def test_all_pairs_of_bfloat16_levels_are_told_apart() -> None:
    network = constructions.sequences(256, 2, dtype=torch.bfloat16)
    pairs = torch.cartesian_prod(torch.arange(256), torch.arange(256))
    assert torch.equal(network.generate(network.virtual_token(pairs), torch.zeros(65536, 0, dtype=torch.long)), pairs)


def test_all_levels_of_float32_arrive_at_the_decoder() -> None:
    network = constructions.sequences(2**24, 1, dtype=torch.float32)
    for levels in torch.arange(2**24).split(2**21):
        virtual = levels.to(torch.float32)[:, None]
        assert torch.equal(network.numbers(virtual, levels[:, None][:, :0]).flatten(), levels.to(torch.float32))


def test_the_digits_of_the_ends_and_a_sample_are_right_at_the_largest_vocabulary() -> None:
    """The logits of 2^24 tokens are too many to decode all; the two digits they are a linear map of are not."""
    for dtype, V, base in ((torch.float32, 2**24, 2**12), (torch.float64, 2**40, 2**20)):
        network = layers.Digits(base, 2, dtype)
        sample = torch.randint(V, (20,), generator=torch.Generator().manual_seed(0))
        level = torch.cat([torch.tensor([0, 1, base - 1, base, V - base, V - 1]), sample])
        got = network(level.to(dtype)[:, None]).long()
        assert torch.equal(got, torch.stack([level % base, level // base], -1))


def test_a_few_tokens_of_the_largest_float32_vocabulary() -> None:
    network = constructions.sequences(2**24, 2, dtype=torch.float32)
    target = torch.tensor([[2**24 - 1, 0], [12_345_678, 2**24 - 4097]])
    for row in target:
        assert constructions.verify(network, row).fraction == 1


def test_a_hard_token_selects_at_most_v_completions() -> None:
    """The contrast: with V embeddings to choose from in the virtual token's place, a network gives V answers."""
    V, N = 5, 4
    network = constructions.sequences(V, N)
    table = torch.rand(V, network.width, dtype=torch.float64) * V
    assert constructions.count_outputs(network, table) <= V
    every = torch.tensor(list(itertools.product(range(V), repeat=N)))
    assert constructions.count_outputs(network, network.virtual_token(every)) == V**N
