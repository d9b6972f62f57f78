"""New Python processes in a tenth of a second: forks of one that has imported torch and transformers already.

For tests of what befalls processes. Each has its own arguments, environment, folder, pipes, signals and exit code, and
a `__main__` of its own; processes that it makes by multiprocessing are as new, and as quick where `spares` are asked
for. It differs from one that is begun in full in that modules are there already: what it imports, how quickly, and the
flags of Python are not to be tested with it. Ctrl-C stops it even where tests run in the background. Where nothing can
be forked, processes are begun in full.
"""

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

import tunescope
from tunescope.system.forkserver import GPUS

PARENT = Path(__file__).with_name("warm_parent.py")
FORKED = hasattr(os, "pidfd_open") and not any(map(os.path.exists, GPUS))


def start(
    words: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    ours: bool = True,
    spares: int = 0,
) -> "Process | subprocess.Popen[str]":
    """A process that runs what follows `python` on a command line: `-c CODE ...`, `-m MODULE ...` or `SCRIPT ...`.

    env: added to this process's. ours: tunescope is imported too, the one of this process; without it, PYTHONPATH says
    which is found. spares: how many of its own processes are begun as quickly.
    """
    given, around = [str(word) for word in words], {**os.environ, **(env or {})}
    if FORKED:
        return Process(given, around, cwd or Path.cwd(), ours, spares)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *given], env=around, cwd=cwd, **pipes)


def run(words: Sequence[object], *, check: bool = False, **options: Any) -> "subprocess.CompletedProcess[str]":
    """What became of a whole process: `returncode`, `stdout` and `stderr`.

    Raises subprocess.CalledProcessError, if asked to `check`, where it failed.
    """
    process = start(words, **options)
    out, err = process.communicate(timeout=120)
    done = subprocess.CompletedProcess([sys.executable, *words], process.returncode, out, err)
    if check and done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.args, out, err)
    return done


def free_port() -> int:
    """For processes that meet at one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Process:
    """As much of subprocess.Popen as tests use, with text from both pipes."""

    def __init__(self, words: list[str], env: dict[str, str], cwd: Path, ours: bool, spares: int) -> None:
        (out, its_out), (err, its_err), (ended, its_end) = os.pipe(), os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        asked = {"words": words, "env": env, "cwd": str(cwd), "spares": spares}
        theirs = [nothing, its_out, its_err, its_end]
        socket.send_fds(_parents()[ours], [json.dumps(asked).encode()], theirs)
        for fd in theirs:
            os.close(fd)
        self.stdout: IO[str] = open(out)  # noqa: SIM115 - as Popen's are
        self.stderr: IO[str] = open(err)  # noqa: SIM115
        self._ended: IO[str] = open(ended)  # noqa: SIM115
        self.pid = int(self._ended.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.wait(timeout=0, late=False)

    def wait(self, timeout: float | None = None, *, late: bool = True) -> int | None:
        """The exit code, negative for a signal. Raises subprocess.TimeoutExpired, unless it may be late."""
        if self.returncode is None:
            with selectors.DefaultSelector() as waits:
                waits.register(self._ended, selectors.EVENT_READ)
                if waits.select(timeout):
                    self.returncode = os.waitstatus_to_exitcode(int(self._ended.readline()))
                    self._ended.close()
                elif late:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """All that it says until it ends. Raises subprocess.TimeoutExpired."""
        said: dict[Any, list[bytes]] = {self.stdout: [], self.stderr: []}
        until = time.monotonic() + timeout
        with selectors.DefaultSelector() as waits:
            for pipe in said:
                waits.register(pipe, selectors.EVENT_READ)
            while waits.get_map():
                if not (ready := waits.select(until - time.monotonic())):
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
                for key, _ in ready:
                    if part := os.read(key.fd, 1 << 16):
                        said[key.fileobj].append(part)
                    else:
                        waits.unregister(key.fileobj)
        self.wait(max(0.0, until - time.monotonic()))
        out, err = (b"".join(parts).decode() for parts in said.values())
        self.stdout.close()
        self.stderr.close()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _parents() -> dict[bool, socket.socket]:
    """Whether it has imported tunescope -> where the process is asked that others are forks of."""
    ends = {ours: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for ours in (False, True)}
    theirs = [its.fileno() for _, its in ends.values()]
    words = [sys.executable, str(PARENT), str(Path(tunescope.__file__).parents[1]), *map(str, theirs)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    parent = subprocess.Popen(words, env=env, pass_fds=theirs, **quiet)
    for _, its in ends.values():
        its.close()
    atexit.register(_end, parent, [own for own, _ in ends.values()])
    return {ours: own for ours, (own, _) in ends.items()}


def _end(parent: "subprocess.Popen[bytes]", ends: list[socket.socket]) -> None:
    for own in ends:
        own.close()
    try:
        parent.wait(timeout=5)
    except subprocess.TimeoutExpired:
        parent.kill()
