"""Of a cluster of two nodes one is killed in the middle: its job runs on the other, and the numbers are the same."""

import pytest
import tinyrun
from far_tools import numbers, question

pytest.importorskip("ray")
from benchmarks import executors  # which the result file of the same is made by
from tunescope.comparison.comparison import ask

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def test_a_node_of_two_that_is_killed_costs_time_alone(tmp_path):
    material = tinyrun.write(tmp_path / "material")
    asked = question(material, "lora", trials=3, steps=400)
    want = numbers(ask(asked, tmp_path / "here", quiet=True).results)
    rows = []
    found = executors.row(rows, asked, tmp_path, "ray", workers=0, nodes=2, kills=1, whole_node=True)
    assert rows[0]["kills"] == 1 and numbers(found) == want
