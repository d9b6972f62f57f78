"""Run in two processes, or called in one: what a model answers to rows, as JSON, and how often it was called.

python dealt.py FOLDER
"""

import glob
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import tinyrun
import torch

import tunescope as ts
from tunescope.attachment.share import dealt, share
from tunescope.errors import UserError
from tunescope.system import ranks
from tunescope.tasks.answers.beam_search import BeamSearch
from tunescope.tasks.answers.decode import Sampling, sampled, written
from tunescope.tasks.answers.own_loss import window_losses
from tunescope.tasks.answers.row_vectors import mean_states
from tunescope.tasks.kinds.classification import Classification

Json = dict[str, Any]
WRITES = ("greedy", "beams", "sampled")


def model_of(how: str) -> Any:
    """One that writes one to eight tokens behind these texts."""
    model = tinyrun.model(seed=2).double()
    if how:
        share(model, how, torch.device("cpu"))
    return model


def found(how: str) -> Json:
    """Answers by name: {"answer", "calls": the model was called so often}. how: "" in one process."""
    model, tokenizer = model_of(how), tinyrun.tokenizer()
    parts = {"train": tinyrun.rows(8, 1)}
    task = Classification().prepare(parts, tokenizer, model_kind="decoder")
    rows = task.encode(tinyrun.rows(7, 3), tokenizer, model_kind="decoder")
    plain = [replace(row, input_ids=tuple(tokenizer(row.source)["input_ids"])) for row in rows]
    windows = [tuple(row.input_ids[:2]) for row in rows]
    ids = [row.input_ids for row in rows]
    asked: dict[str, Callable[[], Any]] = {
        "labels": lambda: [asdict(one) for one in task.predict(model, rows, tokenizer, batch_size=2)],
        "three batches": lambda: [asdict(one) for one in task.predict(model, rows[:5], tokenizer, batch_size=2)],
        "one batch": lambda: [asdict(one) for one in task.predict(model, rows[:2], tokenizer, batch_size=2)],
        "greedy": lambda: written(model, plain, tokenizer, BeamSearch(), 8, 1),
        "beams": lambda: written(model, plain, tokenizer, BeamSearch(beams=2), 8, 1),
        "sampled": lambda: sampled(model, plain, tokenizer, 8, 1, Sampling(1.0, 0)),
        "windows": lambda: window_losses(model, windows, tokenizer).tolist(),
        "states": lambda: mean_states(model, ids, tokenizer, 2).tolist(),
    }
    answers = {}
    for name, ask in asked.items():
        with ts.attach(model, *([] if name in WRITES else [ts.Prefix(length=2)]), ts.LoRA(rank=2)):
            calls: list[None] = []
            handle = model.transformer.h[0].register_forward_hook(lambda *_, calls=calls: calls.append(None))
            answers[name] = {"answer": ask(), "calls": len(calls)}
            handle.remove()
    return answers


def refused() -> str:
    """What a process is told of a batch that another one refuses."""

    def work(number: int) -> int:
        if number == 1:
            raise UserError("the second batch is refused")
        return number

    try:
        dealt(model_of("ddp"), range(4), work)
    except UserError as problem:
        return str(problem)
    return ""


def threads() -> list[str]:
    """Those of this process that torch began for a group of processes, where Linux tells."""
    names = [Path(file).read_text().strip() for file in glob.glob("/proc/self/task/*/comm")]
    return sorted(name for name in names if "gloo" in name or "tcpstore" in name)


def main(folder: Path) -> None:
    with ranks.joined(int(os.environ["WORLD_SIZE"]), "cpu"):
        next(model_of("fsdp").parameters()).full_tensor()  # which torch keeps more of
        told = {how: found(how) for how in ("ddp", "fsdp")} | {"refused": refused(), "threads": threads()}
    told["left"] = threads()
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
