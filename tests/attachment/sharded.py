"""Run in several processes, or in one: what comes of models that are shared between them, as JSON and tensors.

python sharded.py FOLDER
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny
import torch
from torch.distributed.fsdp import fully_shard

import tunescope as ts
from tunescope.errors import UserError

REFUSED: dict[str, Callable[[], Any]] = {}


def refused(function: Callable[[], Any]) -> Callable[[], Any]:
    REFUSED[function.__name__] = function
    return function


def sharded(model: Any, **given: Any) -> Any:
    """Each layer by itself and the rest together, as users do."""
    for layer in model.model.layers:
        fully_shard(layer, **given)
    return fully_shard(model, **given)


def loss(model: Any) -> Any:
    text = tiny.ids(2, 6)
    return model(input_ids=text, labels=text).loss


@refused
def fsdp_before_attach() -> None:
    ts.attach(sharded(tiny.make("llama")), ts.LoRA(rank=2))


@refused
def fsdp_after_attach() -> None:
    model = tiny.make("llama")
    with ts.attach(model, ts.LoRA(rank=2)):
        loss(sharded(model))


@refused
def inside_ddp() -> None:
    model = torch.nn.parallel.DistributedDataParallel(tiny.make("llama"))
    ts.attach(model, ts.LoRA(rank=2))  # type: ignore[arg-type]


@refused
def first_fsdp() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = tiny.make("llama")
    FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    ts.attach(model, ts.LoRA(rank=2))


@refused
def tensor_parallel_by_hand() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model = tiny.make("llama")
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    parallelize_module(model.model.layers[0].mlp, mesh, {"gate_proj": ColwiseParallel()})
    ts.attach(model, ts.LoRA(rank=2))


@refused
def tensor_parallel_by_a_plan() -> None:
    import transformers as tf
    from transformers.distributed import DistributedConfig

    folder = Path(sys.argv[1]) / "saved"
    tiny.make("llama").save_pretrained(folder)  # which the first process does
    torch.distributed.barrier()
    made = tf.AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(tp_size=2))
    ts.attach(made, ts.LoRA(rank=2))


def main(folder: Path) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo")
    said = {}
    for name, function in REFUSED.items():
        try:
            function()
        except UserError as problem:
            said[name] = str(problem)
    (folder / f"{world}-{rank}.json").write_text(json.dumps({"refused": said}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
