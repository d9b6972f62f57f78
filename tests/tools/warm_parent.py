"""The process that those of `warm.py` are forks of. It serves two sockets: behind the second tunescope is imported too.

SOURCE PLAIN OURS: where tunescope lies, and the two sockets. A request names a process's words, environment and folder,
with four files: its three streams, and one where its pid is written, and how it ended.
"""

import gc
import importlib
import json
import multiprocessing.process
import os
import random
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import util
from types import ModuleType
from typing import Any

THEIRS = (
    *("numpy", "scipy.optimize", "scipy.stats", "torch", "torch._dynamo", "torch.distributed.tensor", "transformers"),
    *("transformers.modeling_utils", "transformers.generation.utils", "transformers.integrations.accelerate"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.gpt2.modeling_gpt2", "transformers.models.llama.modeling_llama", "transformers.trainer"),
    *(
        "safetensors.torch",
        "peft",
        "huggingface_hub.hf_api",
        "pydantic",
        "cyclopts",
        "rich.progress",
        "rich.table",
        "jinja2",
    ),
    *("sacrebleu", "psutil", "filelock", "concurrent.futures.process", "multiprocessing.forkserver"),
)
OURS = ("cli.app", "comparison.comparison", "search.study", "reproduce.run", "lab.demo", "exchange.export_import")
Program = Callable[[], None]


def serve(asked: socket.socket, path: list[str], other: int = 0) -> Program:
    """In each process that is forked of this one, what it is to run; this one ends with who asks, after the `other`."""
    ends: dict[int, int] = {}  # of a running process: where it is known that it ended -> where that is to be written
    with selectors.DefaultSelector() as waits:
        waits.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in waits.select():
                if key.fileobj is not asked:
                    waits.unregister(key.fileobj)
                    _, status = os.waitpid(key.data, 0)
                    with suppress(BrokenPipeError):
                        os.write(ends[key.fd], f"{status}\n".encode())
                    os.close(ends.pop(key.fd))
                    os.close(key.fd)
                    continue
                words, files, _, _ = socket.recv_fds(asked, 1 << 20, 4)
                if not words:
                    if other:
                        os.waitpid(other, 0)
                    os._exit(0)
                pid = os.fork()
                if pid == 0:
                    asked.close()
                    waits.close()
                    for file in (*ends, *ends.values()):
                        os.close(file)
                    return _new(json.loads(words), files, path)
                os.write(files[3], f"{pid}\n".encode())
                for file in files[:3]:
                    os.close(file)
                ended = os.pidfd_open(pid)
                ends[ended] = files[3]
                waits.register(ended, selectors.EVENT_READ, pid)


def _new(asked: dict[str, Any], files: list[int], path: list[str]) -> Program:
    """What a new process is to run, when it is as one that Python has just begun."""
    for stream, file in enumerate(files[:3]):
        os.dup2(file, stream)
    for file in files:
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _around(asked, path)
    spares: list[tuple[int, socket.socket]] = []
    for _ in range(asked["spares"]):
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            return _spare(own, its, spares, path)
        its.close()
        spares.append((pid, own))
    _begin_by(spares)
    return lambda: _run(asked["words"])


def _around(asked: dict[str, Any], path: list[str]) -> None:
    """The environment and the folder, and what Python makes of them."""
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    named = [place for place in asked["env"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [*named, *path]
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].set_num_threads(int(asked["env"].get("OMP_NUM_THREADS", 1)))


def _spare(own: socket.socket, its: socket.socket, others: list[tuple[int, socket.socket]], path: list[str]) -> Program:
    """In a process that waits until the one that it was forked of has something for it, or is gone."""
    for end in (own, *(end for _, end in others)):
        end.close()
    words, files, _, _ = socket.recv_fds(its, 1 << 20, 64)
    if not words:
        os._exit(0)
    its.close()
    asked = json.loads(words)
    high = [os.dup2(file, 1000 + index) for index, file in enumerate(files)]
    os.closerange(3, 1000)
    for file, number in zip(high, asked["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    _around(asked, path)
    return lambda: _run(asked["words"])


def _begin_by(spares: list[tuple[int, socket.socket]]) -> None:
    """Give multiprocessing's processes to spare ones while there are any."""
    plain = util.spawnv_passfds

    def begin(executable: bytes, words: list[Any], files: Any) -> int:
        given = [os.fsdecode(word) for word in words]
        if not spares or "multiprocessing.resource_tracker" in " ".join(given):
            return int(plain(executable, words, files))
        pid, own = spares.pop(0)
        files = [int(file) for file in files]
        asked = {"words": given[given.index("-c") :], "files": files, "env": dict(os.environ), "cwd": os.getcwd()}
        socket.send_fds(own, [json.dumps(asked).encode()], files)
        own.close()
        return pid

    util.spawnv_passfds = begin


def _run(words: list[str]) -> None:
    """What `python` followed by the words does."""
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    elif words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")


def main(source: str, plain: int, ours: int) -> Program:
    """Import, and serve: each of the two in a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = sys.path[1:]
    for name in THEIRS:
        with suppress(ImportError):
            importlib.import_module(name)
    sockets = [socket.socket(fileno=fd) for fd in (plain, ours)]
    gc.freeze()
    if other := os.fork():
        sockets[1].close()
        return serve(sockets[0], path, other)
    sockets[0].close()
    sys.path[:] = [source, *path]
    sockets[1].recv(1, socket.MSG_PEEK)  # not before somebody asks
    for name in OURS:
        importlib.import_module(f"tunescope.{name}")
    gc.freeze()
    return serve(sockets[1], path)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))()
