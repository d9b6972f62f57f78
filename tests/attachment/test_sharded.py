"""Several processes share a model: what they train is what one process trains, or it is refused in a line."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import sharded
import tiny
import torch
import warm
from safetensors.torch import load_file
from torch import Tensor

import tunescope as ts
from tunescope.models.fingerprint import hash_tensors

HERE = Path(__file__).resolve().parent
LINES = {
    "parameters_in_parts": "use lora or adapter, or train with DDP",
    "parameters_in_parts_afterwards": "use lora or adapter, or train with DDP",
    "merged_into_parts": "no process has a parameter of it whole, and merge() changes them",
    "no_file_of_the_family": "attach before fully_shard",
    "tensors_in_parts": "ignored_params=set(tuned.parameters())",
    "inside_ddp": "attach(model.module, ...)",
    "first_fsdp": "sharded by the first version of FSDP",
    "tensor_parallel_by_hand": "load it without a plan",
    "tensor_parallel_by_a_plan": "load it without a plan",
}


def spawned(folder: Path, world: int) -> list[dict[str, Any]]:
    """What each of so many processes found."""
    paths = [str(HERE), str(HERE.parent / "tools"), str(HERE.parent.parent / "src"), os.environ.get("PYTHONPATH", "")]
    around = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    around |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_PORT": str(warm.free_port())}
    started = [
        warm.start([HERE / "sharded.py", folder], env=around | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world)
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * world, "".join(text[-2000:] for text in said)
    told = [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]
    return [one | {"tensors": load_file(folder / f"{world}-{rank}.safetensors")} for rank, one in enumerate(told)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return spawned(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture(scope="module")
def four(two: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return spawned(Path(two[0]["folder"]), 4)


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Tensor]]:
    return {arm: sharded.trained(arm, "") for arm in sharded.ARMS}


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_train_as_one_in_whichever_order(
    world: int, alone: dict[str, dict[str, Tensor]], request: pytest.FixtureRequest
) -> None:
    found = request.getfixturevalue({2: "two", 4: "four"}[world])
    for arm, order, checkpointing in sharded.cases(world):
        for name, value in alone[arm].items():
            mine = [one["tensors"][f"{arm}/{order}/{checkpointing}/{name}"] for one in found]
            assert all(torch.equal(one, mine[0]) for one in mine), (arm, order, name)
            torch.testing.assert_close(mine[0], value, rtol=0, atol=1e-6, msg=f"{arm}, {order}, {name}")


def test_a_run_goes_on_in_any_number_of_processes(
    two: list[dict[str, Any]], four: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Begun in two with DDP: rows of unlike length, batches that are short of rows, in parts, their norm clipped."""
    (tmp_path / "new").mkdir()
    whole = sharded.learned(tmp_path / "new", "")
    shutil.copytree(Path(two[0]["folder"]) / "half", tmp_path / "half")
    alone = sharded.learned(tmp_path / "half", "")
    for name, value in whole.items():
        found = [alone[name], *(one["tensors"][f"learned/{name}"] for one in (*two, *four))]
        for one in found:
            torch.testing.assert_close(one, value, rtol=0, atol=1e-6, msg=name)


def test_what_a_process_drops_is_the_same_where_a_run_is_gone_on_with(two: list[dict[str, Any]]) -> None:
    for found in two:
        whole = {name: value for name, value in found["tensors"].items() if name.startswith("whole/")}
        assert whole
        for name, value in whole.items():
            assert torch.equal(found["tensors"][name.replace("whole/", "again/")], value)


def test_where_the_memory_of_one_process_ends_all_go_on_in_more_parts(
    two: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The second has room for one row at once; the gradient is that of the whole batch."""
    whole = sharded.learned(tmp_path, "")
    for found in two:
        assert found["said"] == ["a batch of 5 rows goes through in 2 parts from here on, with the same gradient"]
        for name, value in whole.items():
            torch.testing.assert_close(found["tensors"][f"halved/{name}"], value, rtol=0, atol=1e-6, msg=name)


def test_what_is_attached_to_a_sharded_model_acts_as_on_a_whole_one(two: list[dict[str, Any]]) -> None:
    for arm in sharded.CONTEXTS:
        whole = sharded.logits(Path(two[0]["folder"]), arm, split=False)  # of what the first process has saved
        for found in two:
            torch.testing.assert_close(found["tensors"][f"logits/{arm}"], whole, rtol=0, atol=1e-9, msg=arm)


@pytest.mark.parametrize("kind", sharded.KINDS)
def test_what_is_saved_behind_a_score_is_of_the_same_base_and_the_next_step_goes_on(
    two: list[dict[str, Any]], kind: str
) -> None:
    folder, dtype = Path(two[0]["folder"]), sharded.KINDS[kind][0]
    for found in two:
        with_it, without = (
            {name.partition(f"/{saves}/")[2]: value for name, value in found["tensors"].items() if begin in name}
            for saves in (True, False)
            for begin in [f"between/{kind}/{saves}/"]
        )
        assert with_it
        assert with_it.keys() == without.keys()
        assert all(torch.equal(value, without[name]) for name, value in with_it.items())
    for step in range(2):
        saved = ts.load(folder / f"{kind}, step {step}")
        ts.attach(tiny.make("llama", dtype=dtype), *saved).detach()  # raises for another base


def test_a_tensor_that_was_hashed_may_be_resized() -> None:
    value = torch.ones(4, dtype=torch.bfloat16)
    hash_tensors({"a": value})
    value.untyped_storage().resize_(0)  # raises where NumPy has seen it
    assert value.untyped_storage().size() == 0


def test_what_would_be_silently_wrong_is_refused_in_a_line(two: list[dict[str, Any]]) -> None:
    assert set(LINES) == set(sharded.REFUSED)
    for found in two:
        for name, part in LINES.items():
            assert part in found["refused"][name], name
