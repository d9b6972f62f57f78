"""Full tuning in a comparison trains the weights themselves: the same scores, and gone on with to the bit."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch

from tunescope.attachment.artifact_folder import load
from tunescope.comparison import arms, problem, run, saved_artifact
from tunescope.comparison.job import Job, job
from tunescope.trial.arm import Arm
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.plan_fields import planned

FEW = {"steps": 6, "batch_size": 4, "eval_every": 2, "patience": 9}


@pytest.fixture(scope="module")
def model_and_data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    return tinyrun.write(tmp_path_factory.mktemp("tiny"))  # type: ignore[no-untyped-call, no-any-return]


def opened(model_and_data: Any, **given: Any) -> Bench:
    model, data = model_and_data
    return open_bench(planned(model, data, {"kind": "classification"}, FEW | given))


def todo_of(bench: Bench, **fields: Any) -> Job:
    return replace(job(bench, arms.ready(Arm("full", "full"), bench), (1e-3,), 0, test=True), **fields)


def begun(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"version": 2}')  # by which it is known that nobody has removed the folder
    return folder


def states(bench: Bench) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in bench.model.state_dict().items()}


def test_the_scores_are_those_of_a_change_beside_the_weights(
    model_and_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened(model_and_data)
    before = states(bench)
    found = run.run(bench, todo_of(bench), begun(tmp_path / "in place"), lambda _: None)
    monkeypatch.setattr(run, "training_in_place", lambda *_: nullcontext())
    beside = run.run(bench, todo_of(bench), begun(tmp_path / "beside"), lambda _: None)
    assert found["status"] == beside["status"] == "done" and found["stats"] == beside["stats"]
    assert [one["loss"] for one in found["curve"]] == pytest.approx([one["loss"] for one in beside["curve"]], abs=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in states(bench).items())


def test_a_run_that_was_paused_goes_on_to_the_bit(model_and_data: Any, tmp_path: Path) -> None:
    bench = opened(model_and_data)
    whole = run.run(bench, todo_of(bench), begun(tmp_path / "whole"), lambda _: None)
    paused = run.run(bench, todo_of(bench, until=2, test=False), begun(tmp_path / "parts"), lambda _: None)
    assert paused["status"] == "paused"
    rest = run.run(bench, todo_of(bench), begun(tmp_path / "parts"), lambda _: None)
    assert rest["curve"] == whole["curve"]
    one, two = (load(saved_artifact.place(tmp_path / name, whole["id"]))[0].tensors for name in ("whole", "parts"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_a_state_of_changes_is_not_taken_for_weights(
    model_and_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that an earlier version left: the run begins anew."""
    bench = opened(model_and_data)
    with monkeypatch.context() as patch:
        patch.setattr(run, "training_in_place", lambda *_: nullcontext())
        run.run(bench, todo_of(bench, until=2, test=False), begun(tmp_path / "run"), lambda _: None)
    steps: list[int] = []
    run.run(bench, todo_of(bench), begun(tmp_path / "run"), lambda progress: steps.append(progress.step))
    assert steps == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("decay", "is_whole"), [(0.0, True), (0.1, False)])
def test_a_decay_is_of_the_change(model_and_data: Any, decay: float, is_whole: bool) -> None:
    bench = opened(model_and_data, weight_decay=decay)
    todo = todo_of(bench)
    with problem.attached(bench, todo, todo.arm.specs) as tuned, problem.training_in_place(tuned, bench.plan.settings):
        assert {name.endswith(".whole") for name in tuned.named_parameters()} == {is_whole}
