"""Processes that work on one thing: begun by us or by torchrun, told apart by their rank, joined in a group.

torchrun's words are used: RANK and LOCAL_RANK say which process this is, WORLD_SIZE how many there are.
"""

from __future__ import annotations

import gc
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import IO

from tunescope.errors import Note, UserError
from tunescope.system import files
from tunescope.system.say import say

OF_SHARDED = (  # where torch keeps what it found out of operations on sharded tensors, and what forgets it
    ("torch.distributed.tensor.debug", "_clear_sharding_prop_cache"),
    ("torch.distributed.tensor._redistribute", "clear_redistribute_planner_cache"),
    ("torch.distributed.tensor._redistribute", "_gen_transform_infos.cache_clear"),
)
GRACE = 10.0  # seconds to end by themselves, for processes that a terminal may have interrupted


def rank() -> int:
    """This process's, 0 of the first and of one that is alone."""
    return int(os.environ.get("RANK", "0"))


def is_begun() -> bool:
    """Whether this is one of several processes already, by torchrun or by `begun`."""
    return "WORLD_SIZE" in os.environ


def begun_count() -> int:
    """How many there are of them, 1 where this one is alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def count(asked: int) -> int:
    """How many processes work on it: as asked, where torchrun has not begun another number; 0 takes what there is.

    Raises UserError for a number below 0, and for another WORLD_SIZE than was asked for.
    """
    if asked < 0:
        raise UserError(f"--processes {asked} is too small; give a whole number of 0 or more.")
    if not is_begun():
        if not asked and "ACCELERATE_MIXED_PRECISION" in os.environ:
            warnings.warn(
                Note(
                    "accelerate launch has begun this process alone, whatever --num_processes says; for several, "
                    "type: tunescope compare --processes N, or torchrun --nproc-per-node N -m tunescope compare"
                ),
                stacklevel=2,
            )
        return asked or 1
    begun = begun_count()
    if asked and asked != begun:
        raise UserError(
            f"--processes {asked}: {begun} were begun (WORLD_SIZE={begun}). Leave --processes out, or type: "
            f"torchrun --nproc-per-node {asked} -m tunescope compare ..."
        )
    return begun


def met(processes: int) -> None:
    """Wait until all processes are here. Raises UserError where one has ended instead."""
    if processes > 1:
        import torch

        try:
            torch.distributed.barrier()
        except RuntimeError as problem:
            raise UserError("another of the processes has ended; what it says tells why.") from problem


@contextmanager
def joined(processes: int, device: str) -> Iterator[None]:
    """Within it this process is one of the group; on GPUs each has one of its own."""
    if processes == 1:
        yield
        return
    if not is_begun():
        raise UserError(
            f"{processes} processes are begun from a shell: torchrun --nproc-per-node {processes} SCRIPT, or tunescope "
            f"compare --processes {processes}."
        )
    import torch

    if device.startswith("cuda"):
        torch.cuda.set_device(_own_gpu(torch.cuda.device_count()))
    has_joined = torch.distributed.is_initialized()
    if not has_joined:
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    try:
        yield
    finally:
        if not has_joined:
            leave()


def leave() -> None:
    """Leave the group of processes, and end its threads: one that meets the end of Python can abort the process.

    What torch keeps of operations on sharded tensors would hold the group, and its threads with it.
    """
    import torch

    torch.distributed.destroy_process_group()
    for module, name in OF_SHARDED if "torch.distributed.tensor" in sys.modules else ():
        with suppress(ImportError, AttributeError):  # torch's own names, which another version may not have
            attrgetter(name)(import_module(module))()
    gc.collect()


def _own_gpu(gpus: int) -> int:
    """The number of this process's GPU. Raises UserError where this machine has fewer than processes."""
    own, here = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    if own >= gpus:
        fits = f"--processes {gpus}" if gpus > 1 else "--device cpu"
        raise UserError(
            f"--processes: {here} are on this machine, each takes a GPU of its own, and it has {gpus}. Type: {fits}"
        )
    return own


def begun(processes: int, words: Sequence[str]) -> int:
    """`python WORDS` in so many processes of this machine; the exit code of the first that fails, or 0.

    The first one's output is shown, and of the others what one says that fails by itself.
    """
    port = _free_port()
    around = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"}
    around |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with ExitStack() as stack:
        said: list[IO[str]] = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(processes)]
        team = [_begin(index, words, around, said[index]) for index in range(processes)]
        for process in team:
            stack.callback(process.wait)
            stack.callback(process.kill)
        try:
            return _watched(team, said)
        except KeyboardInterrupt:
            if not _end_soon(team, GRACE):  # a terminal has told them too; a signal to this process alone has not
                _told_to_end(team)
            raise
        except SystemExit:  # a kill of this process alone: the others take back what is theirs
            _told_to_end(team)
            raise


def _begin(index: int, words: Sequence[str], around: Mapping[str, str], said: IO[str]) -> subprocess.Popen[str]:
    own = {"RANK": str(index), "LOCAL_RANK": str(index)}
    out, err = (None, None) if index == 0 else (subprocess.DEVNULL, said)
    command = [sys.executable, *words]
    return subprocess.Popen(command, env={**os.environ, **around, **own}, text=True, stdout=out, stderr=err)


def _watched(team: list[subprocess.Popen[str]], said: list[IO[str]]) -> int:
    """Wait for all; when one fails the others are ended, for they would wait for it."""
    while True:
        codes = [process.poll() for process in team]
        failed = next((index for index, code in enumerate(codes) if code), None)
        if failed is not None:
            return _ended(team, said, failed)
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)


def _ended(team: list[subprocess.Popen[str]], said: list[IO[str]], failed: int) -> int:
    time.sleep(0.5)  # the first may have the same to say
    failed = 0 if team[0].poll() else failed
    _told_to_end(team)
    said[failed].seek(0)
    code, words = team[failed].returncode, said[failed].read().rstrip()  # the first one's own were shown
    if code < 0 and not words:
        words = _killed(failed, len(team), signal.Signals(-code))
    if words:
        say(words, sys.stderr)
    return code if code > 0 else 128 - code


def _killed(index: int, processes: int, by: signal.Signals) -> str:
    why = ", most likely for want of memory" if by == signal.SIGKILL else ""
    return f"process {index + 1} of {processes} was ended by {by.name}{why}. To go on, {files.SAME_COMMAND}."


def _told_to_end(team: list[subprocess.Popen[str]]) -> None:
    for process in team:
        process.send_signal(signal.SIGTERM)
    _end_soon(team, 5)


def _end_soon(team: list[subprocess.Popen[str]], seconds: float) -> bool:
    """Whether all of them end, each within so many seconds."""
    for process in team:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    return all(process.poll() is not None for process in team)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """The folder itself for the first process; for another one a copy beside it, by links, which is gone afterwards.

    So every process reads and writes what the first one does, and what the first writes stays.
    """
    if rank() == 0:
        yield folder
        return
    mine = folder.parent / f".{folder.name}.process-{rank()}"
    shutil.rmtree(mine, ignore_errors=True)
    try:
        if folder.exists():
            shutil.copytree(folder, mine, copy_function=os.link, ignore=shutil.ignore_patterns("LOCK*"))
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def swept(folder: Path) -> None:
    """Copies beside a folder that processes left which were killed; none may be at work there."""
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.process-*"):
        shutil.rmtree(left, ignore_errors=True)
