"""The cost model of a sharded step, against arithmetic by hand."""

import pytest

from tunescope.errors import UserError
from tunescope.theory.costs import shards, training
from tunescope.theory.costs.machine import Machine
from tunescope.theory.costs.methods import Method
from tunescope.theory.costs.shapes import Shape
from tunescope.theory.costs.training import Batch

SHAPE = Shape("llama", 4, 64, 8, 2, 8, 96, 1000)
LAYER = 64 * 64 + 2 * 64 * 16 + 64 * 64 + 3 * 64 * 96 + 2 * 64  # query, keys and values, output, feed-forward, norms
TABLES = 2 * 64 * 1000
LORA = Method("lora", 2, ("attn.q",))


def test_a_device_has_its_part_two_whole_layers_and_the_tables() -> None:
    found = shards.memory(LORA, SHAPE, Batch(8, 16, 8), 4)
    whole = 4 * LAYER + TABLES + 64  # and the last norm
    assert found.weights == pytest.approx(2 * (whole / 4 + 2 * LAYER + TABLES), rel=1e-3)
    assert found.trained == 16 * 4 * 2 * (64 + 64)
    assert found.activations == training.activations(LORA, SHAPE, Batch(2, 16, 2))
    assert found.logits == 4 * 3 * 2 * 1000


def test_the_rows_that_do_not_divide_count_on_the_device_with_most() -> None:
    most = shards.memory(LORA, SHAPE, Batch(9, 16, 9), 4)
    assert most.activations == training.activations(LORA, SHAPE, Batch(3, 16, 3))


def test_a_step_waits_for_the_slower_of_work_and_gathering() -> None:
    batch, own = Batch(8, 16, 8), Batch(2, 16, 2)
    for link, slow in ((1e3, True), (1e18, False)):
        machine = Machine("m", 1e9, 0.5, 1e9, 0.5, 1e9, 1e9, devices=4, link=link)
        alone = Machine("m", 1e9, 0.5, 1e9, 0.5, 1e9, 1e9)
        gathered = 2 * 2 * SHAPE.parameters * 3 / 4 / link
        reduced = 2 * 3 / 4 * 4 * 4 * 2 * 128 / link
        expected = (gathered if slow else training.seconds(LORA, SHAPE, own, alone)) + reduced
        assert shards.seconds(LORA, SHAPE, batch, machine) == pytest.approx(expected)


def test_one_device_gathers_nothing_and_needs_no_link() -> None:
    alone = Machine("m", 1e9, 0.5, 1e9, 0.5, 1e9, 1e9)
    batch = Batch(8, 16, 8)
    assert shards.seconds(LORA, SHAPE, batch, alone) == training.seconds(LORA, SHAPE, batch, alone)


def test_full_tuning_is_refused() -> None:
    with pytest.raises(UserError, match="shards a frozen model"):
        shards.memory(Method("full"), SHAPE, Batch(8, 16, 8), 4)


def test_a_soft_prompt_gathers_the_weights_twice_for_it_is_run_by_itself() -> None:
    batch, soft = Batch(8, 16, 8), Method("soft", 5)
    machine = Machine("m", 1e9, 0.5, 1e9, 0.5, 1e9, 1e9, devices=4, link=1e3)
    gathered = 2 * 2 * 2 * SHAPE.parameters * 3 / 4 / 1e3
    reduced = 2 * 3 / 4 * 4 * 5 * 64 / 1e3
    assert shards.seconds(soft, SHAPE, batch, machine) == pytest.approx(gathered + reduced)
