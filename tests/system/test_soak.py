"""A short part of the soak, by its seed: writes that fail, power that goes, a command that is killed, a bank.

The whole of it is `make soak`; its figures are in benchmarks/results/soak.json.
"""

import json
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[1] / "soak"
sys.path.insert(0, str(SOAK))

import bank  # noqa: E402
import disk  # noqa: E402
import kills  # noqa: E402
import writes  # noqa: E402

RESULTS = SOAK.parents[1] / "benchmarks" / "results" / "soak.json"


def test_after_some_failing_writes_and_power_losses_the_run_comes_to_the_truth(tmp_path):
    assert writes.run(tmp_path, seed=2, count=6)["faults"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
def test_a_command_that_is_killed_at_random_moments_comes_to_the_truth(tmp_path):
    assert kills.run(tmp_path, seed=1, count=2, commands=("reproduce",))["faults"] == []


def test_rows_of_a_bank_that_is_read_again_and_again_are_as_alone(tmp_path):
    figures = bank.run(tmp_path, seed=1, count=1)
    assert figures["faults"] == [] and figures["tries"] > 3


def test_what_was_not_synced_is_gone_after_a_power_loss(tmp_path):
    """The layer itself: without it a soak that finds nothing says nothing."""
    root = tmp_path / "run"
    root.mkdir()
    layer = disk.Disk(root, fail_at=5)
    with pytest.raises(disk.PowerLoss), disk.on(layer):
        disk.files.put(root / "kept", b"kept")  # open, write, sync, rename, sync: the power goes at the last
    assert [kind for kind, _ in layer.calls] == [*("open", "write", "fsync", "rename", "fsync")]
    assert layer.lost == {}
    layer = disk.Disk(root, fail_at=6)
    with disk.on(layer):
        disk.files.put(root / "kept", b"whole")
        with pytest.raises(disk.PowerLoss):
            disk.files.write(root / "torn", b"never synced")
    disk.put_back(layer.lost, tmp_path / "left")
    assert {path.name: path.read_bytes() for path in (tmp_path / "left").iterdir()} == {"kept": b"whole"}


def test_the_committed_figures_are_of_a_soak_that_found_nothing():
    page = json.loads(RESULTS.read_text())
    for name in ("bank", "kills", "mutations", "pages", "writes"):
        assert page[name]["faults"] == [] and page[name].get("tries", page[name].get("mutations")) > 0
        assert {"seed", "versions", "machine", "command", "created"} <= page[name].keys()
