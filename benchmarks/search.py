"""A step of PEZ against a training step of a soft prompt of the same length; and the projection alone.

Both steps have the same rows, the same loss and an optimiser's update, on one core. The projection is of 20 positions
on the whole vocabulary, on two.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tunescope as ts
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import Scale, gpt2, text
from tunescope.data.splits import split
from tunescope.models.fingerprint import fingerprint
from tunescope.search.methods._nearest import nearest
from tunescope.search.methods.pez import PEZ
from tunescope.search.objective import objective
from tunescope.search.vocabulary import vocabulary
from tunescope.system.machine import threads
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Plan

LENGTH = 20
STEP, PROJECTION = 1.1, 15.0  # of a soft prompt's step; milliseconds
LABELS = ("w1", "w2")


def bench(scale: Scale) -> Bench:
    """A model with as many words as it has embeddings, and a batch of rows with two labels."""
    model = gpt2(scale)
    tokenizer = words(scale.gpt2[-1])
    made = [
        {"text": tokenizer.decode(ids), "label": LABELS[index % 2]}
        for index, ids in enumerate(text(scale, scale.gpt2[-1]))
    ]
    splits = split(made, made, made)
    task = Classification(template="{text}").prepare(splits.parts(), tokenizer, model_kind="decoder")
    plan = Plan(model="gpt2", data={"train": "none"}, task={"kind": "classification"})
    return Bench(plan, model, tokenizer, "decoder", task, splits, {}, fingerprint(model), torch.device("cpu"))


def words(count: int) -> Any:
    """A token, a word."""
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(count)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=2048)


def soft_step(given: Bench, stack: ExitStack) -> Callable[[], None]:
    """As `train` makes it: loss, gradient, clipping, AdamW."""
    tuned = stack.enter_context(ts.attach(given.model, ts.Soft(length=LENGTH))).train()
    rows = given.encoded("train", behind="", room=None)
    parameters = tuned.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=0.1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        given.task.loss(given.model, rows, given.tokenizer).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step


def pez_step(given: Bench, stack: ExitStack) -> Callable[[], object]:
    """One step of the search: the gradient at the projection, the update, the next projection."""
    allowed = vocabulary(given.tokenizer, len(given.model.get_input_embeddings().weight))
    goal = stack.enter_context(objective(given, allowed, LENGTH))
    moves = PEZ(length=LENGTH, batch=len(goal.rows)).moves(goal, torch.Generator().manual_seed(0), 1)
    return lambda: next(moves)


def run(scale: Scale) -> Result:
    with ExitStack() as stack:
        steps = {"PEZ": pez_step(bench(scale), stack), "soft": soft_step(bench(scale), stack)}
        times = alternating(steps, scale.rounds)
    case = f"gpt2, a step of PEZ, prompt of {LENGTH}"
    _, width, _, tokens = scale.gpt2
    tokens = min(tokens, 50_000)
    draw = torch.Generator().manual_seed(2)
    table, rows = torch.randn(tokens, width, generator=draw), torch.randn(LENGTH, width, generator=draw)
    kinds = {by: nearest(table, by) for by in ("cosine", "euclidean")}  # type: ignore[arg-type]
    with threads(2):
        alone = alternating({by: lambda by=by: kinds[by](rows) for by in kinds}, 5 * scale.rounds)  # type: ignore[misc]
    checks = [Check(f"ms of projecting by {by}, two cores", statistics.median(alone[by]), PROJECTION) for by in kinds]
    settings = {
        "length": LENGTH,
        "rows": scale.rows,
        "tokens": scale.tokens,
        "projection": f"{LENGTH} positions on {tokens:,} x {width}",
        "logits": "where a label is read",
    }
    return Result([compared(case, "PEZ", "soft", times, STEP)], checks, settings)
