"""Several processes share a model: what they train is what one process trains, or it is refused in a line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import sharded
import warm
from test_two_processes import free_port

HERE = Path(__file__).resolve().parent
LINES = {
    "fsdp_before_attach": "is sharded by FSDP2",
    "fsdp_after_attach": "is sharded by FSDP2",
    "inside_ddp": "attach(model.module, ...)",
    "first_fsdp": "sharded by the first version of FSDP",
    "tensor_parallel_by_hand": "load it without a plan",
    "tensor_parallel_by_a_plan": "load it without a plan",
}


def spawned(folder: Path, world: int) -> list[dict[str, Any]]:
    """What each of so many processes found."""
    paths = [str(HERE), str(HERE.parent / "tools"), str(HERE.parent.parent / "src"), os.environ.get("PYTHONPATH", "")]
    around = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    around |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_PORT": str(free_port())}
    started = [
        warm.start([HERE / "sharded.py", folder], env=around | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world)
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * world, "".join(text[-2000:] for text in said)
    return [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return spawned(tmp_path_factory.mktemp("two"), 2)


def test_what_would_be_silently_wrong_is_refused_in_a_line(two: list[dict[str, Any]]) -> None:
    assert set(LINES) == set(sharded.REFUSED)
    for found in two:
        for name, part in LINES.items():
            assert part in found["refused"][name], name
