"""The worlds of named skills as recipes use them: pretrained from a recipe's settings, searched, and scored."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from tunescope.data.splits import Splits
from tunescope.lab.worlds.lessons import digits, exact
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.named_skills import Named, tokenizer
from tunescope.lab.worlds.world import World, rows
from tunescope.lab.worlds.world_cache import Pretraining
from tunescope.models.fingerprint import fingerprint
from tunescope.report.cells import Cell
from tunescope.reproduce.recipe import Found, Settings
from tunescope.tasks.kinds.generation import Generation
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Plan
from tunescope.trial.train.settings import Settings as Training

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def world(settings: Settings, shape: tuple[int, int, int], seed: int, **fields: Any) -> Pretraining[Named]:
    """The pretraining of a recipe's settings; `fields` replace those of its world."""
    steps, (layers, heads, width) = settings["steps"], shape
    kept = dict(settings["world"]) | {"skills": tuple(settings["world"]["skills"])}
    named = Named(**kept | {"world": World(**settings["world"]["world"])} | fields)
    training = Training(
        steps=steps,
        batch_size=settings["batch_size"],
        schedule="cosine",
        eval_every=max(1, steps // 10),
        patience=10,
    )
    return Pretraining(named, Shape(layers, heads, width, initial=width**-0.5), training, settings["rate"], seed)


def bench(settings: Settings, made: Pretraining[Named], model: PreTrainedModel, skill: str) -> Any:
    """Rows of the skill without its name, as searches take them."""
    inputs, words = made.curriculum.world, tokenizer(made.curriculum)
    parts: dict[str, list[Any]] = {
        part: rows(inputs.sequences(part, count, made.seed), skill) for part, count in settings["rows"].items()
    }
    task = Generation(template="{input}", max_new_tokens=inputs.length)
    prepared = task.prepare(parts, words, model_kind="decoder")
    plan = Plan(model=str(made), data={}, task={"kind": "generation"})
    splits = Splits(parts["train"], parts["dev"], parts["test"])
    return Bench(plan, model, words, "decoder", prepared, splits, {}, fingerprint(model), torch.device("cpu"))


def right(settings: Settings, made: Pretraining[Named], model: PreTrainedModel, skill: str, prompt: str) -> float:
    """The share of the skill's test rows that the model answers whole behind the prompt."""
    ids = torch.tensor(tokenizer(made.curriculum)(prompt)["input_ids"], dtype=torch.int64)
    inputs = made.curriculum.world
    tests = digits(inputs, (skill,), "test", settings["rows"]["test"], made.seed)
    marks = exact(model, torch.cat([ids.expand(len(tests), -1), tests], 1), inputs.length)
    return sum(marks) / len(marks)


def name(made: Pretraining[Named], skill: str) -> str:
    """The skill's name in that world, as text."""
    ids = made.curriculum.names(made.seed)[made.curriculum.skills.index(skill)]
    text: str = tokenizer(made.curriculum).decode(ids.tolist())
    return text


def cell(found: Found, drawn: str, value: Callable[[dict[str, Any]], float], least: float = 0.0) -> Cell:
    """A share, one value for each of what was `drawn` (seeds, languages), the mean over its skills.

    The skills of one are no draws of their own: a model that was pretrained badly is so for all of them.
    """
    kept: dict[Any, list[float]] = {}
    for unit, one in found:
        kept.setdefault(unit[drawn], []).append(value(one))
    return Cell(tuple(fmean(values) for values in kept.values()), bounds=(least, 1.0))
