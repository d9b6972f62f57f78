"""Two processes with DDP, each with its part of a batch, train to the tensors of one process with the whole batch."""

import os
from pathlib import Path

import torch
import two_processes
import warm
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent


def test_two_processes_are_as_one_with_the_whole_batch(tmp_path: Path) -> None:
    paths = [str(HERE), str(HERE.parent / "tools"), str(HERE.parent.parent / "src"), os.environ.get("PYTHONPATH", "")]
    shared = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(warm.free_port())}  # as torchrun tells its processes
    started = [
        warm.start([HERE / "two_processes.py", tmp_path], env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said[0][-2000:] + said[1][-2000:]
    two_processes.main(tmp_path)
    whole = load_file(tmp_path / "1-0.safetensors")
    parts = [load_file(tmp_path / f"2-{rank}.safetensors") for rank in range(2)]
    for name, value in whole.items():
        assert torch.equal(parts[0][name], parts[1][name]), name
        torch.testing.assert_close(parts[0][name], value, rtol=0, atol=1e-6)
