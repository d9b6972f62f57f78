"""Jobs keep all that they were asked with on their way to a worker; what is shared, and what a fault costs."""

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
import tinyrun
import torch

from tunescope.comparison import arms, comparison, far_worker, run, shared_passes, workers
from tunescope.comparison.job import job
from tunescope.errors import UserError
from tunescope.system import files
from tunescope.trial import elsewhere, plan, plan_check
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    model, data = tinyrun.write(tmp_path_factory.mktemp("material"))
    fields = {"task": {"kind": "classification"}, "arms": ("lora", "prefix"), "budgets": (256,), "threads": 2}
    settings = Settings(steps=12, batch_size=8, eval_every=4)
    return open_bench(plan_check.check(plan.Plan(model=model, data=data, beyond=0, settings=settings, **fields)))


def asked(bench, name="lora", rate=0.01, seed=3, **how):
    arm = next(one for one in arms.planned_arms(bench) if one.name == name)
    return job(bench, arms.ready(arm, bench), (rate,), seed, **how)


def test_a_worker_elsewhere_makes_the_very_job_that_it_is_asked_for(bench):
    site = far_worker.Site(Path("run"), bench)
    for todo in (
        asked(bench, test=True),
        replace(asked(bench, "prefix", 0.1), until=4),
        replace(asked(bench, steps=2), scored=False),
    ):
        found = far_worker._job(site, json.loads(json.dumps(far_worker.ask_of(todo))))
        names = ("id", "rates", "seed", "steps", "test", "until", "scored")
        assert [getattr(found, name) for name in names] == [getattr(todo, name) for name in names]
        assert found.arm.label == todo.arm.label
    other = far_worker.ask_of(todo) | {"id": "0" * 12}
    with pytest.raises(UserError, match=rf"^job 000000000000 comes out as {todo.id} on .*: another version"):
        far_worker._job(site, other)


def test_runs_that_each_draw_rows_of_their_own_share_no_pass(bench):
    jobs = [asked(bench, seed=seed) for seed in (0, 1)]
    assert shared_passes.groups(bench, jobs, 4) == [jobs]
    few = replace(bench, plan=replace(bench.plan, k_shot=4))
    assert shared_passes.groups(few, jobs, 4) == [[todo] for todo in jobs]


def test_a_worker_computes_with_as_many_threads_as_the_plan_says(bench):
    before = torch.get_num_threads()
    try:
        workers._start(*workers.Runner(bench, Path(), 2, lambda *_: None, lambda *_: None).near().given)
        assert (before, torch.get_num_threads()) == (1, 2)
        torch.set_num_threads(before)
        elsewhere.taken(bench.plan, bench.plan.model, 1.0)  # on another machine
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_run_computes_with_as_many_threads_as_its_plan_says_and_gives_them_back(bench, tmp_path):
    before, seen = torch.get_num_threads(), []

    def opened(question):
        seen.append(torch.get_num_threads())
        return replace(bench, plan=question)

    question = replace(bench.plan, arms=("zero-shot",), seeds=(0,), forgetting="none")
    comparison.run(question, tmp_path / "run", opened, by_name=True, quiet=True)
    assert (before, seen, torch.get_num_threads()) == (1, [2], 1)


def test_an_artifact_that_the_disk_does_not_give_stops_the_run_and_one_that_does_not_fit_is_refused(bench, tmp_path):
    def fails(cause):
        def work():
            raise UserError("it cannot be read") from cause

        return work

    todo = asked(bench)
    found = run._guarded(todo, tmp_path, fails(None))
    assert (found["status"], found["reason"], found["id"]) == ("refused", "it cannot be read", todo.id)
    with pytest.raises(OSError, match="Input/output error"):
        run._guarded(todo, tmp_path, fails(OSError(errno.EIO, "Input/output error")))


def test_what_a_run_draws_while_it_trains_is_of_its_seed_and_its_best_step_is_that_of_its_score(bench, tmp_path):
    seeds = set()
    todo = asked(bench, rate=0.03, seed=7)
    files.put_json(tmp_path / "config.json", {"version": 2})
    found = run.run(bench, todo, tmp_path, lambda progress: seeds.add(torch.initial_seed()))
    assert seeds == {7} and found["seed"] == 7 and found["steps"] == 12
    scores = {point["step"]: point["dev"] for point in found["curve"]}
    assert found["dev"] == max(scores.values()) == scores[found["best_step"]]
    result = json.loads((tmp_path / "arms" / todo.id / "result.json").read_text())
    assert result["best_step"] == found["best_step"]
