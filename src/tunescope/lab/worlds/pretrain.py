"""Pretrain the small decoder of the digit world: ``python -m tunescope.lab.worlds.pretrain --out DIR --seed S``.

The model is a Llama made from its configuration. It learns four skills in nearly equal parts from documents of one to
five solved examples, all of one skill that is never named. In a document's first example it can therefore only
guess which skill is wanted (Petrov et al. 2024, section 5.2); later it can tell from the examples before, so
that it has seen what a context is for. Their models saw one example at a time.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from tunescope.lab.worlds.documents import document
from tunescope.lab.worlds.manifest import write_manifest
from tunescope.lab.worlds.measure import measure
from tunescope.lab.worlds.skills import SKILLS, Sequences, find
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world import World

MIX = ("ascending", "descending", "add1", "add2")
#: examples before a document's last: none in half of the batches, and these have more documents
SHOWN = (0, 0, 0, 0, 1, 2, 3, 4)
POOL = 16384  # sequences drawn at a time

Batch = TypeVar("Batch")
LossOf = Callable[[PreTrainedModel, Batch], Tensor]


@dataclass(frozen=True)
class Recipe:
    """The model's size and how long it is trained. A batch has ``examples`` examples, in one or more documents."""

    layers: int = 2
    width: int = 96
    heads: int = 4
    inner: int = 256
    steps: int = 5500
    examples: int = 64
    learning_rate: float = 2e-3
    seed: int = 0
    mix: tuple[str, ...] = MIX


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """An untrained decoder for the tokenizer's vocabulary."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=512,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def mixed(sequences: Sequences, mix: tuple[str, ...]) -> Sequences:
    """The targets of (documents, examples, length), the skills of the mix taking turns over the documents."""
    targets = np.empty_like(sequences)
    for turn, skill in enumerate(mix):
        targets[turn :: len(mix)] = find(skill)(sequences[turn :: len(mix)])
    return targets


def batches(world: World, recipe: Recipe) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (ids, labels) of documents from the world's training part."""
    generator = np.random.default_rng(recipe.seed)
    pool = np.empty((0, world.length), dtype=np.int64)
    while True:
        if len(pool) < recipe.examples:
            pool = world.sequences("train", POOL, int(generator.integers(2**62)))
        each = int(generator.choice(SHOWN)) + 1
        chosen, pool = np.split(pool, [recipe.examples // each * each])
        sequences = chosen.reshape(-1, each, world.length)
        yield document(sequences, mixed(sequences, recipe.mix), world)


def train(model: PreTrainedModel, data: Iterator[Batch], loss_of: LossOf[Batch], steps: int, rate: float) -> None:
    """Train in place for that many batches, printing a line now and then: every lab world's one loop."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: cosine(step, steps))
    started = time.monotonic()
    for step in range(1, steps + 1):
        loss = loss_of(model, next(data))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0 or step == steps:
            seconds = time.monotonic() - started
            print(f"step {step} of {steps}  loss {loss.item():.4f}  {seconds:.0f} s", flush=True)


def next_token_loss(model: PreTrainedModel, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A decoder's mean cross-entropy of the labels that are not ignored."""
    ids, labels = batch
    logits = model(ids, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def cosine(step: int, steps: int) -> float:
    """The share of the learning rate at a step: a rise over the first twentieth, then half a cosine to zero."""
    warm = max(1, steps // 20)
    return (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def pretrain(out: Path, world: World, recipe: Recipe, command: str) -> dict[str, dict[str, float]]:
    """A model folder with tokenizer and manifest at ``out``; what it can do, skill by skill."""
    tokenizer = tokenizer_for(world)
    model = new_model(recipe, tokenizer)
    train(model, batches(world, recipe), next_token_loss, recipe.steps, recipe.learning_rate)
    model.eval()
    rows = 1000
    skills = {skill: measure(model, world, skill, rows) for skill in SKILLS}
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)
    facts = {"command": command, "recipe": asdict(recipe), "parameters": model.num_parameters()}
    write_manifest(out, {**facts, "test_rows": rows, "skills": skills})
    return skills


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tunescope.lab.worlds.pretrain", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model, its tokenizer and manifest")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    given = parser.parse_args()
    torch.set_num_threads(1)
    command = f"python -m tunescope.lab.worlds.pretrain --out DIR --seed {given.seed} --steps {given.steps}"
    skills = pretrain(given.out, World(), Recipe(seed=given.seed, steps=given.steps), command)
    print(json.dumps(skills, indent=1))


if __name__ == "__main__":
    main()
