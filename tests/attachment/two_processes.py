"""Run by torchrun in two processes, or as it is in one: trains what is attached and writes its tensors.

python two_processes.py FOLDER
"""

import os
import sys
from pathlib import Path
from typing import Any

import tiny
import torch
from safetensors.torch import save_file
from torch import Tensor
from training import arguments, mean_loss, recording

import tunescope as ts
from tunescope.system import ranks

BANK = {"anna": "prefix:length=3", "ben": "lora:rank=2"}
ROWS = ["anna", "anna", None, "ben"]  # the second process has no row of anna's


def by_trainer(folder: Path, world: int) -> dict[str, Tensor]:
    import transformers as tf

    model = tiny.make("gpt2", dtype=torch.float32)
    data = [{"input_ids": row, "labels": row} for row in tiny.ids(12, 6)]
    given = arguments(
        folder / f"run{world}", per_device_train_batch_size=4 // world, max_steps=3, lr_scheduler_type="constant"
    )
    with ts.attach(model, *tiny.away(model, "lora:rank=2+prefix:length=3", 0)) as tuned:
        with tuned.registered():
            trainer = tf.Trainer(model, given, train_dataset=data, data_collator=recording([]))
            trainer.train()
            assert trainer.args.world_size == world
        return {f"trainer/{name}": value for name, value in tuned.named_parameters().items()}


def by_ddp(rank: int, world: int) -> dict[str, Tensor]:
    """A bank under plain DDP; each process has its part of the rows."""
    model: Any = tiny.make("gpt2", dtype=torch.float32)
    text = tiny.ids(4, 6)
    mine = slice(rank * 4 // world, (rank + 1) * 4 // world)
    bank = ts.Bank({name: tiny.away(model, arm, seed) for seed, (name, arm) in enumerate(BANK.items())})
    with ts.attach(model, bank) as tuned, tuned.registered():
        wrapped = model
        if world > 1:
            wrapped = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            wrapped.config = model.config
        optimizer = torch.optim.SGD(tuned.parameters(), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            mean_loss(wrapped, {"input_ids": text[mine], "labels": text[mine], "rows": ROWS[mine]}).backward()
            optimizer.step()
        return {f"bank/{name}": value.detach() for name, value in tuned.named_parameters().items()}


def main(folder: Path) -> None:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    found = by_trainer(folder, world)  # it starts the group of processes
    found |= by_ddp(rank, world)
    save_file(
        {name: value.detach().contiguous() for name, value in found.items()}, folder / f"{world}-{rank}.safetensors"
    )
    if world > 1:
        ranks.leave()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
