"""Pretrained worlds, cached by content: the same recipe on the same software is trained once on a machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from safetensors import SafetensorError

from tunescope.lab.worlds.lessons import Lesson, problem
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.system import files, machine, run_folder
from tunescope.system.package_version import package_version
from tunescope.trial.train.loop import train
from tunescope.trial.train.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Curriculum(Protocol):
    """What a model is pretrained on: a frozen dataclass that says in a few words what it is."""

    @property
    def vocabulary(self) -> int:
        """How many symbols there are."""

    def lesson(self, seed: int) -> Lesson:
        """What is learned; all that is drawn for it is drawn by the seed."""


C = TypeVar("C", bound=Curriculum)


@dataclass(frozen=True)
class Pretraining(Generic[C]):
    """All that a pretrained model depends on."""

    curriculum: C
    shape: Shape
    settings: Settings
    rate: float
    seed: int

    @property
    def identity(self) -> str:
        """16 hex digits: equal for equal recipes, torch, transformers and tunescope versions."""
        kind = {"kind": type(self.curriculum).__name__}
        versions = {name: package_version(name) for name in ("torch", "transformers", "tunescope")}
        return run_folder.identity(asdict(self) | kind | versions)

    def lesson(self) -> Lesson:
        """What it learns."""
        return self.curriculum.lesson(self.seed)

    def __str__(self) -> str:
        return f"{self.curriculum}; {self.shape}; seed {self.seed}"


def cache() -> Path:
    """$TUNESCOPE_CACHE, or tunescope/ in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TUNESCOPE_CACHE") or Path(home) / "tunescope") / "worlds"


def pretrained(recipe: Pretraining[Any]) -> Any:
    """The model, in eval mode: from the cache, or trained now and put there, also where only a part of it is there."""
    from transformers import GPT2LMHeadModel

    folder = cache() / recipe.identity
    if not (folder / "config.json").exists():
        _put(pretrain(recipe, recipe.lesson()), folder)
    try:
        return GPT2LMHeadModel.from_pretrained(folder).eval()
    except (OSError, SafetensorError) as problem:
        if files.disk_problem(problem) is not None:
            raise
        files.remove(folder)
        _put(pretrain(recipe, recipe.lesson()), folder)
    return GPT2LMHeadModel.from_pretrained(folder).eval()


def pretrain(recipe: Pretraining[Any], given: Lesson) -> Any:
    """A new model of the recipe's shape that has learned the lesson."""
    model = gpt2(recipe.shape, recipe.curriculum.vocabulary, given.train.shape[1], recipe.seed)
    model.train()
    with machine.seeded(recipe.seed):
        learning = problem(model, dict(model.named_parameters()), recipe.rate, given)
        train(replace(learning, score=_rested(model, learning.score)), recipe.settings, recipe.seed)
    return model.eval()


def _rested(model: PreTrainedModel, score: Callable[[], float]) -> Callable[[], float]:
    """The score, taken without dropout."""

    def rested() -> float:
        model.eval()
        value = score()
        model.train()
        return value

    return rested


def _put(model: PreTrainedModel, folder: Path) -> None:
    """Whole or not at all; of two processes that make the same world, one keeps its own."""
    beside = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    try:
        model.save_pretrained(beside)
        files.put_first(beside, folder)
    except BaseException as problem:
        files.remove(beside)
        if isinstance(problem, Exception) and (reason := files.disk_problem(problem)) is not None:
            how = f"Mend that, or name another folder by TUNESCOPE_CACHE, then {files.SAME_COMMAND}"
            raise files.DiskError(f"{reason} in {folder.parent}, where worlds are kept. {how}") from problem
        raise
