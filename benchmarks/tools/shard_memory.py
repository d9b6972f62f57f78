"""One of several processes that load a checkpoint and shard it: its private memory, the most of all processes, as JSON.

python -m benchmarks.tools.shard_memory FILE MODEL DTYPE
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

import tunescope as ts
from benchmarks.tools.private import private
from tunescope.attachment.share import share
from tunescope.models.fingerprint import fingerprint

EVERY = 0.002  # seconds


@contextmanager
def most() -> Iterator[list[float]]:
    """The largest private memory meanwhile, in the list."""
    found, ended = [private()], threading.Event()

    def look() -> None:
        while not ended.wait(EVERY):
            found[0] = max(found[0], private())

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        ended.set()
        watching.join()


def main(path: str, folder: str, dtype: str) -> None:
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    before = private()
    with most() as peak:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        loaded = private()
        fingerprint(model)
        share(model, "fsdp", torch.device("cpu"))
    shared = private()
    with ts.attach(model, ts.LoRA(rank=8)) as tuned, most() as step:
        ids = torch.arange(8).view(1, 8)
        tuned.train()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    told = {"loaded": loaded, "most": peak[0], "sharded": shared, "step": step[0]}
    values = torch.tensor(list(told.values())) - before
    torch.distributed.all_reduce(values, op=torch.distributed.ReduceOp.MAX)
    if torch.distributed.get_rank() == 0:
        Path(path).write_text(json.dumps(dict(zip(told, values.tolist(), strict=True))))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
