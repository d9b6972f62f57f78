"""The process that workers are forks of: it imports what they need, begins only where it is wanted, is soon gone."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tunescope.comparing import ahead

BEGUN = """
import sys
from tunescope.comparing import ahead
from multiprocessing import forkserver
ahead.begin(sys.argv[1], int(sys.argv[2]))
heavy = [name for name in ("torch", "transformers", "numpy") if name in sys.modules]
pid = forkserver._forkserver._forkserver_pid
made = ahead.context().Process(target=print, args=("from a worker",))
if pid is not None:
    made.start()
    made.join()
print(pid, heavy)
"""


def begun(model: Path, workers: int) -> list[str]:
    command = [sys.executable, "-c", BEGUN, str(model), str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(ahead.context().get_start_method() != "forkserver", reason="nothing is forked here")
def test_what_imports_for_the_workers_is_gone_with_the_command(tmp_path: Path) -> None:
    worker, last = begun(tmp_path, 2)
    pid, heavy = last.split(maxsplit=1)
    assert worker == "from a worker" and heavy == "[]"
    assert soon_gone(int(pid))
    assert begun(tmp_path, 1) == ["None []"]
    assert begun(tmp_path / "hub-name", 0) == ["None []"]


def soon_gone(pid: int) -> bool:
    """It was told to go while the command ended."""
    until = time.monotonic() + 5
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pid)


def alive(pid: int) -> bool:
    """Whether it runs, and is not only waiting to be told of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
