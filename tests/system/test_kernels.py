"""How much is kept of what oneDNN compiles for a shape."""

import os
import subprocess
import sys

import pytest

from tunescope.cli import app
from tunescope.reproduce import piece
from tunescope.system.kernels import KEPT, NAMES, keep_few
from tunescope.system.machine import threads

GROWN = """
import ctypes, torch
class Info(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]  # of mallinfo2; the eighth: bytes in use
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
torch.set_num_threads(1)
before = libc.mallinfo2().field7
for length in range(1, 400):
    torch.ones(8, 16, length, dtype=torch.bfloat16) @ torch.ones(8, length, 16, dtype=torch.bfloat16)
print(libc.mallinfo2().field7 - before)
"""


def test_what_a_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = NAMES
    monkeypatch.setenv(first, "7")
    monkeypatch.delenv(second, raising=False)
    keep_few()
    assert (os.environ[first], os.environ[second]) == ("7", str(KEPT))


def test_the_command_and_a_worker_of_recipes_keep_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tunescope", "--version"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for begin in (app.main, piece.single):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        with threads(1):
            begin()
        assert [os.environ[name] for name in NAMES] == [str(KEPT)] * 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc tells what is in use")
def test_the_memory_of_many_shapes_is_that_of_few() -> None:
    """torch's own count is none; glibc's is asked in a process of each kind."""
    asked = ("", "from tunescope.system.kernels import keep_few; keep_few()\n")
    bare = {name: value for name, value in os.environ.items() if name not in NAMES}
    grown = [
        int(subprocess.run([sys.executable, "-c", first + GROWN], env=bare, capture_output=True, check=True).stdout)
        for first in asked
    ]
    if grown[0] < 20e6:
        pytest.skip("this CPU has no kernels of 16 bits")
    assert grown[1] < grown[0] / 3
