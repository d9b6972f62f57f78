"""Run in several processes, or in one: what comes of models that are shared between them, as JSON and tensors.

python sharded.py FOLDER
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import tiny
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import tunescope as ts
from tunescope.attachment.share import share
from tunescope.errors import UserError
from tunescope.system import ranks
from tunescope.trial.train.loop import Problem, Saving, train
from tunescope.trial.train.microbatches import Parts
from tunescope.trial.train.settings import Settings
from tunescope.trial.train.share import share_of

Tensors = dict[str, Tensor]
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
def parameters_in_parts() -> None:
    ts.attach(sharded(tiny.make("llama")), ts.Full())


@refused
def parameters_in_parts_afterwards() -> None:
    model = tiny.make("llama")
    with ts.attach(model, ts.Full()):
        loss(sharded(model))


@refused
def merged_into_parts() -> None:
    model = tiny.make("llama")
    artifacts = tiny.away(model, "lora:rank=2", 0)
    ts.merge(sharded(model), *artifacts)


@refused
def no_file_of_the_family() -> None:
    import transformers as tf

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = tf.OlmoForCausalLM(tf.OlmoConfig(vocab_size=32, **sizes, num_key_value_heads=2))
    ts.attach(sharded(model), ts.LoRA(rank=2, sites=("ffn.in",)))


@refused
def tensors_in_parts() -> None:
    model = tiny.make("llama")
    with ts.attach(model, ts.LoRA(rank=2)) as tuned, tuned.registered():
        loss(sharded(model))


@refused
def inside_ddp() -> None:
    model = DistributedDataParallel(tiny.make("llama"))
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


ARMS = {
    "lora": "lora:rank=2",
    "adapter": "adapter:bottleneck=2",
    "prefix": "prefix:length=3",
    "soft": "soft:length=3",
    "mam": "prefix:length=3+adapter:bottleneck=2,sites=ffn,placement=parallel,scale=4.0",
}
ORDERS = ("attach, DDP", "DDP, attach", "fully_shard, attach", "attach, fully_shard")
STEPS = 10


def trained(arm: str, order: str, *, checkpointing: bool = False, dtype: torch.dtype = torch.float64) -> Tensors:
    """Ten steps of AdamW on four rows, of which each process has its part; "" is one process."""
    model = tiny.make("llama", dtype=dtype)
    if checkpointing:
        model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    artifacts = tiny.away(tiny.make("llama", dtype=dtype), ARMS[arm], 0)
    rank, world = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if order else (0, 1)
    if rank:  # which the others are told by the first
        artifacts = [
            ts.Artifact(one.spec, {name: value + 1 for name, value in one.tensors.items()}) for one in artifacts
        ]
    called: Any = model
    if order == "fully_shard, attach":
        sharded(model)
    elif order == "DDP, attach":
        called = DistributedDataParallel(model)
    with ts.attach(model, *artifacts) as tuned, ExitStack() as stack:
        if order == "attach, DDP":
            stack.enter_context(tuned.registered())
            called = DistributedDataParallel(model)
        elif order == "attach, fully_shard":
            sharded(model)
        tuned.train()
        optimizer = torch.optim.AdamW(tuned.parameters(), lr=0.01)
        for step in range(STEPS):
            text = tiny.ids(4, 6, seed=step)[rank * 4 // world : (rank + 1) * 4 // world]
            optimizer.zero_grad()
            called(input_ids=text, labels=text).loss.backward()
            optimizer.step()
        assert all(value.grad is None for value in model.parameters() if value.requires_grad is False)
        return {name: value.detach().clone() for name, value in tuned.named_parameters().items()}


ROWS = [row[: 3 + index % 4] for index, row in enumerate(tiny.ids(12, 6, seed=5).tolist())]  # of unlike length
SAID: list[str] = []
SETTINGS = Settings(steps=6, batch_size=5, eval_every=3, clip=0.05, accumulate=2)


def learned(
    folder: Path, how: str, until: int | None = None, most: tuple[int, ...] = (), arm: str = "lora:rank=2+soft:length=2"
) -> Tensors:
    """What the training loop makes of a LoRA and a soft prompt, gone on with from a state that lies in the folder.

    most: of each process, the rows that its memory has room for.
    """
    model = tiny.make("llama")
    artifacts = tiny.away(model, arm, 0)
    if how:
        share(model, how, torch.device("cpu"))

    def mean(rows: list[int]) -> Tensor:
        if most and len(rows) > most[torch.distributed.get_rank()]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        longest = max(len(ROWS[row]) for row in rows)
        text = torch.tensor([ROWS[row] + [0] * (longest - len(ROWS[row])) for row in rows])
        mask = torch.tensor([[1] * len(ROWS[row]) + [0] * (longest - len(ROWS[row])) for row in rows])
        labels = text.masked_fill(mask == 0, -100)
        found: Tensor = model(input_ids=text, attention_mask=mask, labels=labels).loss
        return found

    with ts.attach(model, *artifacts) as tuned:
        parameters = tuned.train().named_parameters()
        train(
            Problem(
                parameters=parameters,
                rates=dict.fromkeys(parameters, 0.01),
                loss=mean,
                score=lambda: -float(next(iter(parameters.values())).detach().square().sum()),
                lengths=[len(row) for row in ROWS],
                labelled=[len(row) - 1 for row in ROWS],
                share=share_of(model, parameters),
                parts=Parts(1, SAID.append) if most else None,
            ),
            SETTINGS,
            0,
            saving=Saving(folder, 1e9),
            until=until,
        )
        return {name: value.detach().clone() for name, value in parameters.items()}


CONTEXTS = ("text:text=w5 w6 w7", "inputs:length=2", "infix:length=2", "soft:length=3", "prefix:length=2+lora:rank=2")


def logits(folder: Path, arm: str, *, split: bool) -> Tensor:
    """Of a text behind an artifact that was saved, and loaded again, by all processes."""
    model = sharded(tiny.make("llama")) if split else tiny.make("llama")
    saved = folder / "".join(letter for letter in arm if letter.isalnum())
    if split:
        artifacts = tiny.away(tiny.make("llama"), arm, 0)
        ts.save(saved, artifacts, model=model)
    with ts.attach(model, *ts.load(saved)), torch.no_grad():
        start = {"output_start": torch.tensor([3, 3])} if "infix" in arm else {}
        found: Tensor = model(input_ids=tiny.ids(2, 6), **start).logits
        return found.clone()


KINDS = {  # the type of the weights, and that in which FSDP2 computes
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "float32 in bfloat16": (torch.float32, torch.bfloat16),
    "float32 in float16": (torch.float32, torch.float16),
}


def scored_between(folder: Path, kind: str, *, saves: bool) -> Tensors:
    """The gradients of two steps, with a pass without gradients behind each, and what is tuned saved there or not."""
    dtype, within = KINDS[kind]
    artifacts = tiny.away(tiny.make("llama", dtype=dtype), "lora:rank=2", 0)
    model = sharded(tiny.make("llama", dtype=dtype), mp_policy=MixedPrecisionPolicy(param_dtype=within))
    with ts.attach(model, *artifacts) as tuned:
        tuned.train()
        for step in range(2):
            loss(model).backward()
            with torch.no_grad():
                loss(model)
            if saves:
                ts.save(folder / f"{kind}, step {step}", tuned.artifacts, model=model)
        return {name: value.grad.clone() for name, value in tuned.named_parameters().items() if value.grad is not None}


def gone_on_with(folder: Path, rank: int) -> Tensors:
    """With dropout: a whole run, and one that is gone on with from the first process's state, which alone is kept."""
    drops, own = "lora:rank=2,dropout=0.3", folder / f"drops-{rank}"
    (own / "whole").mkdir(parents=True)
    (own / "half").mkdir()
    found = {f"whole/{name}": value for name, value in learned(own / "whole", "ddp", arm=drops).items()}
    learned(own / "half", "ddp", until=3, arm=drops)
    torch.distributed.barrier()
    shutil.copytree(folder / "drops-0" / "half", own / "again")
    return found | {f"again/{name}": value for name, value in learned(own / "again", "ddp", arm=drops).items()}


def main(folder: Path) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    said, found = {}, {}
    with ranks.joined(world, "cpu"):
        for name, function in REFUSED.items() if world == 2 else ():
            try:
                function()
            except UserError as problem:
                said[name] = str(problem)
        for arm, order, checkpointing in cases(world):
            tensors = trained(arm, order, checkpointing=checkpointing)
            found |= {f"{arm}/{order}/{checkpointing}/{name}": value for name, value in tensors.items()}
        for arm in CONTEXTS if world == 2 else ():
            found[f"logits/{arm}"] = logits(folder, arm, split=True)
        for kind, saves in product(KINDS if world == 2 else (), (False, True)):
            tensors = scored_between(folder, kind, saves=saves)
            found |= {f"between/{kind}/{saves}/{name}": value for name, value in tensors.items()}
        mine = folder / f"half-{world}-{rank}"
        if world == 2:
            mine.mkdir()
            found |= {f"halved/{name}": value for name, value in learned(mine, "ddp", most=(9, 1)).items()}
            learned(mine, "ddp", until=3)
            if rank == 0:
                shutil.copytree(mine, folder / "half")
            found |= gone_on_with(folder, rank)
        else:
            shutil.copytree(folder / "half", mine)
        found |= {f"learned/{name}": value for name, value in learned(mine, "fsdp").items()}
    save_file(found, folder / f"{world}-{rank}.safetensors")
    (folder / f"{world}-{rank}.json").write_text(json.dumps({"refused": said, "said": SAID, "folder": str(folder)}))


def cases(world: int) -> list[tuple[str, str, bool]]:
    """(arm, order, checkpointing): each of them once in two processes, and some in four."""
    every = [(arm, order, index % 2 > 0) for index, (arm, order) in enumerate(product(ARMS, ORDERS))]
    return every if world == 2 else [(arm, order, False) for arm, order, _ in every if arm in ("soft", "mam")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
