"""Each benchmark at a tiny shape: it runs, its checks hold, and its result file says what it should."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm

pytest.importorskip("peft", reason="the benchmarks run side by side with peft: pip install 'tunescope[dev]'")

import benchmarks
from benchmarks import compare
from benchmarks.__main__ import main
from benchmarks.tools import memory
from benchmarks.tools.measuring import Check, compared
from benchmarks.tools.predicting import Case, machine
from benchmarks.tools.running import names, run

WHOLE = {"version", "name", "about", "command", "created", "seconds", "versions", "machine", "settings"}
SLOW = ("executors", "sharding")  # whose own tests ask the same
SLOW += (
    "workers_memory",
    "shard_memory",
    "dev_scores",
    "anchor_sections",
    "compare",
    "full_memory",
)  # whole commands in processes that are begun in full
TIMED = re.compile(r"\b(seconds|milliseconds|ms)\b")
RATIO = {"case", "variant", "baseline", "quantity", "rounds", "value", "ratio", "low", "high", "at_most", "met"}


@pytest.fixture
def soon(monkeypatch):
    """The processes that benchmarks begin are forks of one that has imported torch; `startup` times real ones."""

    def run(command, *, cwd, env, **_):
        assert command[0] == sys.executable
        return warm.run(command[1:], cwd=cwd, env=env, spares=1)

    for module in (memory, compare):
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run))


@pytest.mark.usefixtures("soon")
@pytest.mark.filterwarnings("ignore")  # peft and transformers warn of what we do not use
@pytest.mark.parametrize(
    "name", [name if name not in SLOW else pytest.param(name, marks=pytest.mark.slow) for name in names()]
)
def test_a_tiny_run_writes_a_whole_result_file(name, tmp_path):
    run(name, tiny=True, folder=tmp_path)

    page = json.loads((tmp_path / f"{name}.json").read_text())
    assert page.keys() == WHOLE | {"skipped", "ratios", "checks"}
    assert page["name"] == name and page["about"] and f"benchmarks {name}" in page["command"]
    assert page["versions"].keys() == {"tunescope", "torch", "transformers", "peft", "python"}
    assert page["machine"].keys() == {"cpu", "cores", "threads", "device"}
    assert page["skipped"] or page["ratios"] or page["checks"]
    for ratio in page["ratios"]:
        assert ratio.keys() == RATIO
        assert 0 <= ratio["low"] <= ratio["ratio"] <= ratio["high"]
    if name != "costs":  # forecasts of time; a bound on time says nothing on a busy machine
        assert not [check for check in page["checks"] if not check["met"] and not TIMED.search(check["name"])]


def test_the_benchmarks_are_the_files_of_the_folder():
    files = Path(benchmarks.__file__).parent.glob("*.py")
    assert names() == sorted(file.stem for file in files if not file.stem.startswith("_"))
    assert {"bank", "compare", "decoding"} <= set(names())


def test_a_ratio_is_the_median_over_rounds_of_the_ratio_within_a_round():
    ratio = compared("case", "a", "b", {"a": [2.0, 30.0, 8.0], "b": [1.0, 10.0, 2.0]}, at_most=2.9)

    assert (ratio.ratio, ratio.low, ratio.high, ratio.value, ratio.met) == (3.0, 2.0, 4.0, 8.0, False)
    assert compared("case", "a", "b", {"a": [2.0], "b": [1.0]}).met is None


def test_the_calibrated_machine_takes_the_times_that_it_was_calibrated_on():
    step = Case(lambda: None, lambda machine: machine.seconds(6e9))
    decoding = Case(lambda: None, lambda machine: machine.seconds(1e9, 3e8))

    found = machine(step, decoding, 2000.0, 500.0)

    assert found.peak_flops == pytest.approx(3e9)
    assert 1000 * step.predicted(found) == pytest.approx(2000.0)
    assert 1000 * decoding.predicted(found) == pytest.approx(500.0)


def test_a_check_is_met_at_its_bound():
    assert Check("check", 1.0, 1.0).met
    assert not Check("check", 1.1, 1.0).met


def test_a_benchmark_that_does_not_exist_is_refused_by_name(capsys):
    assert main(["sloth"]) == 2
    assert capsys.readouterr().err.startswith("error: no benchmark 'sloth'. There are: anchor_sections, anchors, ")
