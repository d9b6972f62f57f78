"""What ``tunescope demo`` compares: a small model, a skill it has, a skill it has not, and the settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tunescope.lab.worlds.manifest import NAME
from tunescope.lab.worlds.world import Part, World, rows, write
from tunescope.system.files import make_folder
from tunescope.system.say import say

if TYPE_CHECKING:
    from tunescope.comparison.comparison import Comparison

PACKAGED = Path(__file__).parent / "demo_model"
SIZES: dict[Part, int] = {"train": 2000, "dev": 200, "test": 300}
QUESTIONS = {
    "descending": "Sort in falling order. One of four skills the model was pretrained on, never named there.",
    "reverse": "Write the numbers from last to first. The model was never trained on that.",
}
STEPS = {"descending": 160, "reverse": 400}  # a skill that is there is brought out in far fewer
ARMS = ("zero-shot", "demos:k=3", "prefix", "lora", "full")


class DemoTask(TypedDict):
    """One task: its name, what it asks of the model, the updates of a run, and its three JSONL files."""

    name: str
    question: str
    steps: int
    train: Path
    dev: Path
    test: Path


@dataclass(frozen=True)
class DemoSetup:
    """All that the comparisons need; the learning rates are each method's own grid, ``trials`` of it."""

    model: Path
    tasks: tuple[DemoTask, ...]
    arms: tuple[str, ...] = ARMS
    budget: int = 7680  # stored parameters: a prefix of length 20
    batch_size: int = 32
    evaluations: int = 2  # of a run
    trials: int = 2
    seeds: tuple[int, ...] = (0, 1, 2)


def prepare(folder: Path, from_scratch: bool = False) -> DemoSetup:
    """The setup, with its data in ``folder``; from scratch the model too is made there, which takes minutes."""
    make_folder(folder)
    model = scratch_model(folder / "model") if from_scratch else PACKAGED
    return DemoSetup(model=model, tasks=tuple(task(folder, name) for name in QUESTIONS))


def task(folder: Path, name: str) -> DemoTask:
    """The task of that name, its rows written to NAME.PART.jsonl; all tasks have the same inputs."""
    world = World()
    files = {
        part: write(folder / f"{name}.{part}.jsonl", rows(world.sequences(part, count, seed=1), name))
        for part, count in SIZES.items()
    }
    return {
        "name": name,
        "question": QUESTIONS[name],
        "steps": STEPS[name],
        "train": files["train"],
        "dev": files["dev"],
        "test": files["test"],
    }


def scratch_model(folder: Path) -> Path:
    """A model trained here by the packaged one's recipe, unless the folder has one already."""
    from tunescope.lab.worlds.pretrain import Recipe, pretrain

    if not (folder / NAME).exists():  # the manifest is written last
        pretrain(folder, World(), Recipe(), "tunescope demo --from-scratch")
    return folder


def run(folder: Path, from_scratch: bool = False) -> list["Comparison"]:
    """Compare on every task, printing each table, verdict and page; a run broken off is gone on with."""
    setup, found = prepare(folder / "data", from_scratch), []
    for one in setup.tasks:
        say(f"\n{one['name']}: {one['question']}\n")
        found.append(compare_one(setup, one, folder / one["name"]))
    return found


def compare_one(setup: DemoSetup, one: DemoTask, folder: Path) -> "Comparison":
    """One task's comparison, its run in ``folder``. No run is stopped early: scores stay at zero for long."""
    from tunescope.comparison.comparison import compare
    from tunescope.system import machine
    from tunescope.trial.train.settings import Settings

    every = -(-one["steps"] // setup.evaluations)
    found = compare(
        setup.model,
        {"train": one["train"], "dev": one["dev"], "test": one["test"]},
        arms=setup.arms,
        budget=setup.budget,
        task="generation",
        seeds=setup.seeds,
        trials=setup.trials,
        beyond=0,  # a demonstration is short
        settings=Settings(
            steps=one["steps"], batch_size=setup.batch_size, eval_every=every, patience=setup.evaluations + 1
        ),
        out=folder,
        workers=machine.default_workers(setup.model),
    )
    say(f"{found}\n\npage: {found.folder / 'report.html'}")
    return found
