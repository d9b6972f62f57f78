"""`tunescope reproduce` on every executor: the same numbers, each piece once; the oracle is arithmetic."""

import os
from pathlib import Path

import far_tools
import pytest

from tunescope.errors import UserError
from tunescope.reproduce import far_pieces, recipes, run
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import find
from tunescope.system import job_folder, pieces, run_folder, sealed_json

FOLDER = Path(__file__).parent
QUEUES = ("ray", "slurm:cluster=debug")
NAMES = ("local", "ray", "slurm:cluster=debug", "slurm:cluster=local")
WANTED = [0.0, 0.125, 0.25]  # an eighth of each seed
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A recipe of three pieces, which this process and all that it begins find."""
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(FOLDER)])
    monkeypatch.setenv("TOY", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER / "toy_site"), prepend=os.pathsep)
    return tmp_path


def gone_on(toy, executor, say=lambda line: None, seeds=3):
    """result.json, the command typed until it is done; and how often that was."""
    pytest.importorskip(far_tools.NEEDS.get(executor.partition(":")[0], "torch"))
    ask, outcomes = Ask("toy-recipe", seeds=seeds), 3 * executor.endswith("local")
    return far_tools.gone_on(lambda: run.reproduce(ask, toy / "run", 2, say, executor), toy / "run", outcomes)


def values(result):
    return result["table"]["rows"][0]["cells"][0]["values"]


def tries(toy):
    return [len((toy / f"{seed}.pids").read_text().split()) for seed in range(3)]


@pytest.mark.parametrize(
    "executor", [pytest.param(name, marks=pytest.mark.slow) if name != "local" else name for name in NAMES]
)
def test_every_executor_does_every_piece_once_and_gives_the_same_numbers(toy, executor):
    said = []
    result, goes = gone_on(toy, executor, said.append)
    assert values(result) == WANTED and tries(toy) == [1, 1, 1]
    assert sealed_json.read(toy / "run" / "result.json") == result
    told = sorted(line.partition(": ")[2][:6] for line in said if line.startswith("piece "))
    assert told == ["seed 0", "seed 1", "seed 2"] or goes > 1  # what a queue did meanwhile is read, and not told
    again, goes = gone_on(toy, executor)
    assert values(again) == WANTED and tries(toy) == [1, 1, 1] and goes == 1


@pytest.mark.parametrize("name", ["petrov-lora", "prompt-search", "prompt-transfer", "unified-counts", "toy-recipe"])
def test_a_worker_that_reads_the_settings_has_the_pieces_in_the_order_of_who_asked(toy, name):
    """A piece goes as its number: methods and models are asked in another order than that of the alphabet."""
    recipe = find(name)
    settings = recipe.settings(Ask(name))
    run_folder.write_config(toy, {"version": run_folder.VERSION, "recipe": name, "settings": settings}, ())
    assert recipe.units(run_folder.read_config(toy)["settings"]) == recipe.units(settings)


@pytest.mark.slow
@pytest.mark.parametrize("executor", QUEUES)
def test_a_piece_whose_worker_is_killed_is_tried_again_and_costs_itself_alone(toy, executor):
    (toy / "1.dies").write_text("x")
    result, _ = gone_on(toy, executor)
    assert values(result) == WANTED and tries(toy) == [1, 2, 1]


@pytest.mark.slow
def test_a_piece_whose_workers_die_thrice_is_told_when_the_others_are_done(toy):
    (toy / "1.dies").write_text("xxx")
    with pytest.raises(
        UserError, match=r"^piece seed 1: its worker died 3 times; what it printed is in jobs/.*/log.txt"
    ):
        gone_on(toy, "slurm:cluster=debug")
    assert tries(toy) == [1, 3, 1] and len([*toy.glob("run/units/*.json")]) == 2
    result, _ = gone_on(toy, "slurm:cluster=debug")
    assert values(result) == WANTED and tries(toy) == [1, 4, 1]


def test_a_worker_refuses_another_folder_another_version_and_a_piece_of_another_id(toy, monkeypatch):
    folder = toy / "run"
    gone_on(toy, "slurm:cluster=debug", seeds=1)
    token = job_folder.shared(folder)["token"]
    with pytest.raises(UserError, match=r"jobs/run\.json is of another comparison"):
        pieces.begin(far_pieces.opened, folder, "other")
    pieces.begin(far_pieces.opened, folder, token)
    name = "0" * 16
    job_folder.JobFolder(folder, name).ask({"what": "piece", "number": 0, "named": "seed 0"})
    pieces.do(name)
    told = job_folder.JobFolder(folder, name)
    mine = run_folder.identity({"seed": 0})
    assert told.outcome(told.asked()) == {
        "error": f"piece {name} comes out as {mine} here; install the same tunescope on every machine."
    }
    monkeypatch.setattr(pieces, "__version__", "0.0.1")
    with pytest.raises(UserError, match=r"was begun with tunescope .*, and here is 0\.0\.1; install the same on every"):
        pieces.begin(far_pieces.opened, folder, token)
