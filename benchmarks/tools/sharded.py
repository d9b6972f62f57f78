"""One of several processes that train the same together, or one that does alone.

python -m benchmarks.tools.sharded FILE ARM ...
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tunescope as ts
from tunescope.lab.worlds.families import random_model
from tunescope.methods.text_form import parse

ARMS = {
    "lora": "lora:rank=2",
    "adapter": "adapter:bottleneck=2",
    "prefix": "prefix:length=3",
    "soft": "soft:length=3",
    "mam": "prefix:length=3+adapter:bottleneck=2,sites=ffn,placement=parallel,scale=4.0",
}
ORDERS = ("attach, DDP", "DDP, attach", "attach, fully_shard", "fully_shard, attach")
STEPS, ROWS, RATE = 10, 4, 0.01


def trained(arm: str, order: str) -> dict[str, Tensor]:
    """What ten steps make of it; each process has its part of the rows. order: "" for one that is alone."""
    model: Any = random_model("llama", dtype=torch.float32)
    rank, world = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if order else (0, 1)
    called = DistributedDataParallel(model) if order == "DDP, attach" else model
    if order == "fully_shard, attach":
        _shard(model)
    with ts.attach(model, *parse(arm)) as tuned, ExitStack() as stack:
        if order == "attach, DDP":
            stack.enter_context(tuned.registered())
            called = DistributedDataParallel(model)
        elif order == "attach, fully_shard":
            _shard(model)
        tuned.train()
        optimizer = torch.optim.AdamW(tuned.parameters(), lr=RATE)
        for step in range(STEPS):
            draw = torch.Generator().manual_seed(step)
            text = torch.randint(3, model.config.vocab_size, (ROWS, 8), generator=draw)[rank::world]
            optimizer.zero_grad()
            called(input_ids=text, labels=text).loss.backward()
            optimizer.step()
        return {name: value.detach().clone().contiguous() for name, value in tuned.named_parameters().items()}


def _shard(model: Any) -> None:
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)


def main(path: str, names: list[str]) -> None:
    torch.distributed.init_process_group("gloo")
    found: dict[str, Tensor] = {}
    for name in names:
        for order in ORDERS:
            found |= {f"{name}/{order}/{key}": value for key, value in trained(ARMS[name], order).items()}
    if torch.distributed.get_rank() == 0:
        save_file(found, path)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2:])
