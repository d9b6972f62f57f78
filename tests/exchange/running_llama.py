"""A llama.cpp server in a process of its own, for as long as a block lasts, and what is asked of it."""

import json
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(model, slots, kind, *loras):
    """Its address. kind: as `llama_server.py` has it. loras: GGUF files."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("llama_server.py"), model, slots, kind, *loras],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield next(line.split()[1] for line in process.stdout if line.startswith("address "))
    finally:
        process.kill()
        process.communicate()


def completion(address, ids, **more):
    """What the server's /completion answers."""
    request = urllib.request.Request(
        f"{address}/completion", json.dumps({"prompt": ids, **more}).encode(), {"Content-Type": "application/json"}
    )
    return json.load(urllib.request.urlopen(request))
