"""Lab worlds for calibration: small models with some skills, each asked for one that it may or may not have.

The worlds of the first `FITTED` models are fitted on, each held out in its turn; the others are only ever asked.
"""

from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tunescope.lab.worlds.manifest import NAME
from tunescope.lab.worlds.pretrain import Recipe, pretrain
from tunescope.lab.worlds.world import Part, World, rows, write
from tunescope.lab.worlds.world_cache import cache
from tunescope.system import files, run_folder

WORLD = World(length=6, digits=6, few=4)
SIZES: dict[Part, int] = {"train": 2000, "dev": 100, "test": 300}

# layers, heads, width, skills of pretraining, skills to adapt to
MODELS: tuple[tuple[int, int, int, tuple[str, ...], tuple[str, ...]], ...] = (
    (1, 1, 48, ("ascending",), ("ascending", "descending", "add1", "reverse")),
    (1, 4, 64, ("ascending", "add1"), ("ascending", "ascending_add1", "descending", "rotate")),
    (1, 2, 64, ("add1", "reverse"), ("reverse", "add1_add2", "ascending", "swap_pairs")),
    (2, 4, 64, ("ascending", "descending", "add1", "add2"), ("descending", "ascending_add1", "reverse", "rank")),
    (2, 2, 48, ("ascending", "reverse", "add1"), ("reverse", "ascending_add1", "minimum", "double_histogram")),
    (2, 8, 64, ("descending", "rotate"), ("rotate", "descending_add1", "ascending", "running_maximum")),
    (2, 1, 64, ("add1", "add2", "double_histogram"), ("double_histogram", "add1_add2", "reverse", "minimum")),
    (
        2,
        4,
        96,
        ("ascending", "reverse", "swap_pairs", "add2"),
        ("swap_pairs", "ascending_add2", "rotate", "occurrence"),
    ),
    (3, 4, 48, ("descending", "add1", "minimum"), ("minimum", "descending_add1", "reverse", "larger_of_two")),
    (3, 2, 64, ("ascending", "descending", "reverse"), ("descending", "copy_first", "add1", "double_histogram")),
    (3, 4, 64, ("running_maximum", "add2", "rotate"), ("running_maximum", "add1_add2", "descending", "rank")),
    (3, 8, 64, ("ascending", "add1", "add2", "swap_pairs"), ("add2", "ascending_add2", "reverse", "copy_first")),
    (4, 4, 48, ("ascending", "descending", "add1", "add2"), ("ascending", "descending_add2", "rotate", "minimum")),
    (4, 2, 64, ("reverse", "rotate", "occurrence"), ("occurrence", "add1", "descending", "larger_of_two")),
    (
        4,
        4,
        64,
        ("descending", "double_histogram", "add1"),
        ("double_histogram", "descending_add1", "swap_pairs", "rank"),
    ),
    (1, 8, 96, ("descending", "add2", "copy_first"), ("copy_first", "descending_add2", "reverse", "occurrence")),
    (1, 2, 96, ("add1", "swap_pairs"), ("swap_pairs", "ascending", "reverse", "add2")),
    (2, 4, 64, ("ascending", "rotate", "add2"), ("rotate", "ascending_add2", "running_maximum", "descending")),
    (
        3,
        4,
        96,
        ("descending", "occurrence", "add1", "reverse"),
        ("occurrence", "descending_add1", "larger_of_two", "swap_pairs"),
    ),
    (4, 8, 64, ("ascending", "minimum", "swap_pairs"), ("minimum", "add1", "double_histogram", "reverse")),
)
FITTED = 16


@dataclass(frozen=True)
class Trial:
    """One world: a pretrained model, by its number, and the skill that it is adapted to."""

    model: int
    skill: str

    @property
    def recipe(self) -> Recipe:
        return recipe(self.model)


def trials(models: int | None = None) -> list[Trial]:
    """All worlds, or those of the first models."""
    return [Trial(number, skill) for number, row in enumerate(MODELS[:models]) for skill in row[4]]


def recipe(number: int) -> Recipe:
    """How the model of that number is pretrained."""
    layers, heads, width, skills, _ = MODELS[number]
    return Recipe(layers=layers, heads=heads, width=width, inner=2 * width, steps=2000, mix=skills, seed=number)


def folder(number: int, steps: int | None = None) -> Path:
    """The pretrained model of that number with its tokenizer: from the cache, or trained now and put there."""
    made = recipe(number) if steps is None else replace(recipe(number), steps=steps)
    software = {name: version(name) for name in ("torch", "tunescope")}
    path = cache() / run_folder.identity(asdict(made) | asdict(WORLD) | software)
    if not (path / NAME).exists():
        beside = path.with_name(f"{path.name}.tmp-{number}")
        files.remove(beside)
        beside.mkdir(parents=True)
        pretrain(beside, WORLD, made, "tunescope reproduce verdict-calibration")
        files.remove(path)
        files.put_folder(beside, path)
    return path


def data(skill: str, where: Path) -> dict[str, str]:
    """Train, dev and test files of the skill in the folder `where`."""
    where.mkdir(parents=True, exist_ok=True)
    return {
        part: str(write(where / f"{skill}.{part}.jsonl", rows(WORLD.sequences(part, count, seed=1), skill)))
        for part, count in SIZES.items()
    }
