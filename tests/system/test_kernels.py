"""How much is kept of what oneDNN compiles for a shape."""

import os
import subprocess
import sys

import pytest

from tunescope.system.kernels import KEPT, NAMES, keep_few

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
