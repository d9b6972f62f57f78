"""Pretrained worlds, cached by content: the same recipe on the same software is trained once on a machine."""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch

from tunescope import files, store
from tunescope.lab.lessons import ROWS, Lesson, lesson, problem, vocabulary
from tunescope.lab.models import Shape, gpt2
from tunescope.lab.world import World
from tunescope.train import Settings, train


class Recipe(Protocol):
    """What a pretrained model is made from; `identity` changes with whatever its weights depend on."""

    @property
    def shape(self) -> Shape: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def rate(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def identity(self) -> str: ...
    @property
    def vocabulary(self) -> int: ...
    def lesson(self) -> Lesson: ...


@dataclass(frozen=True)
class Pretraining:
    """All that a pretrained model of the digit world depends on: skills in equal parts, never named."""

    skills: tuple[str, ...]
    shape: Shape
    settings: Settings
    rate: float
    seed: int
    world: World
    rows: int = ROWS

    @property
    def identity(self) -> str:
        """16 hex digits: equal for equal recipes, torch and tunescope versions."""
        return store.identity(asdict(self) | {name: version(name) for name in ("torch", "tunescope")})

    @property
    def vocabulary(self) -> int:
        """How many symbols the world has."""
        return vocabulary(self.world)

    def lesson(self) -> Lesson:
        """What it learns."""
        return lesson(self.world, self.skills, self.rows, self.seed)

    def __str__(self) -> str:
        return f"{', '.join(self.skills)}; {self.shape}; seed {self.seed}"


def cache() -> Path:
    """$TUNESCOPE_CACHE, or tunescope/ in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TUNESCOPE_CACHE") or Path(home) / "tunescope") / "worlds"


def pretrained(recipe: Recipe) -> Any:
    """The model, in eval mode: from the cache, or trained now and put there."""
    from transformers import GPT2LMHeadModel

    folder = cache() / recipe.identity
    if not (folder / "config.json").exists():
        _put(pretrain(recipe, recipe.lesson()), folder)
    return GPT2LMHeadModel.from_pretrained(folder).eval()


def pretrain(recipe: Recipe, given: Lesson) -> Any:
    """A new model of the recipe's shape that has learned the lesson."""
    model = gpt2(recipe.shape, recipe.vocabulary, given.train.shape[1], recipe.seed)
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        learning = problem(model, dict(model.named_parameters()), recipe.rate, given)
        train(replace(learning, score=_rested(model, learning.score)), recipe.settings, recipe.seed)
    return model.eval()


def _rested(model: Any, score: Any) -> Any:
    """The score, taken without dropout."""

    def rested() -> float:
        model.eval()
        value: float = score()
        model.train()
        return value

    return rested


def _put(model: Any, folder: Path) -> None:
    """Whole or not at all; of two processes that make the same world, one keeps its own."""
    beside = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    model.save_pretrained(beside)
    with suppress(OSError):
        files.put_folder(beside, folder)
    files.remove(beside)
