"""The process that workers are forks of: it imports what they need, begins only where it is wanted, is soon gone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tunescope.system import forkserver

PRELOAD = "tunescope.comparison.preload"
BEGUN = f"""
PRELOAD = {PRELOAD!r}
import sys, time
from pathlib import Path
from tunescope.system import forkserver as ahead
from multiprocessing import forkserver
ahead.begin(sys.argv[1], int(sys.argv[2]), PRELOAD)
heavy = [name for name in ("torch", "transformers", "numpy") if name in sys.modules]
pid = forkserver._forkserver._forkserver_pid
made = ahead.context(PRELOAD).Process(target=print, args=("from a worker",))
if pid is not None:
    made.start()
    made.join()
    ahead._end()  # as at exit, where it could not be told from one that goes by itself
    until = time.monotonic() + 5
    state = Path("/proc/%d/stat" % pid)
    while state.read_text().split()[2] != "Z" and time.monotonic() < until:
        time.sleep(0.05)
    print(state.read_text().split()[2])
print(pid is not None, heavy)
"""


def begun(model: Path, workers: int) -> list[str]:
    command = [sys.executable, "-c", BEGUN, str(model), str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(forkserver.context(PRELOAD).get_start_method() != "forkserver", reason="nothing is forked here")
def test_what_imports_for_the_workers_is_gone_with_the_command(tmp_path: Path) -> None:
    assert begun(tmp_path, 2) == ["from a worker", "Z", "True []"]
    assert begun(tmp_path, 1) == ["False []"]
    assert begun(tmp_path / "hub-name", 0) == ["False []"]


@pytest.mark.parametrize(("there", "method"), [("/dev/dxg", "spawn"), ("/dev/null", "forkserver")])
def test_nothing_is_forked_where_windows_hands_on_its_gpu(
    there: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver.sys, "platform", "linux")
    monkeypatch.setattr(forkserver.os.path, "exists", lambda path: path == there)
    assert forkserver.context.__wrapped__(PRELOAD).get_start_method() == method
