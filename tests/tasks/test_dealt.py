"""Rows are scored by the processes that share a model, each some of the batches: the answers are one process's."""

import json
import os
from pathlib import Path
from typing import Any

import dealt
import pytest
import warm

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    paths = [str(HERE), str(HERE.parent / "tools"), str(HERE.parent.parent / "src"), os.environ.get("PYTHONPATH", "")]
    around = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    around |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": str(warm.free_port())}
    started = [
        warm.start([HERE / "dealt.py", folder], env=around | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "".join(text[-2000:] for text in said)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dealt.found("")))
    assert len({len(text.split()) for text in found["greedy"]["answer"]}) > 2  # they end at different times
    return found


def test_two_processes_with_a_whole_model_answer_as_one_to_the_last_digit_in_half_the_calls(
    two: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for name, one in alone.items():
        first, second = (told["ddp"][name] for told in two)
        assert first["answer"] == second["answer"] == one["answer"], name
        whole = name == "sampled"  # of which a batch hangs on those before it
        assert first["calls"] + second["calls"] == (2 if whole else 1) * one["calls"], name
        assert whole or name == "one batch" or second["calls"] < one["calls"], name


def test_with_a_sharded_model_both_call_it_equally_often_and_answer_as_one(
    two: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for name, one in alone.items():
        first, second = (told["fsdp"][name] for told in two)
        assert first["answer"] == second["answer"], name
        assert first["calls"] == second["calls"], name
        assert first["calls"] < one["calls"] or name in ("one batch", "sampled", "windows"), name
        assert _rounded(first["answer"]) == _rounded(one["answer"]), name


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, rel=0, abs=1e-6)
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return {name: _rounded(one) for name, one in value.items()} if isinstance(value, dict) else value


def test_what_one_process_refuses_all_refuse(two: list[dict[str, Any]]) -> None:
    assert [told["refused"] for told in two] == ["the second batch is refused"] * 2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads have no names to be seen here")
def test_who_leaves_the_group_has_none_of_its_threads_left_to_meet_the_end_of_python(two: list[dict[str, Any]]) -> None:
    assert all(any("gloo" in name for name in told["threads"]) for told in two)
    assert [told["left"] for told in two] == [[], []]
