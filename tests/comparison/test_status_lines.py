"""What `tunescope status` says of arms that did not go well, of workers elsewhere, and of who works on it."""

import pytest

from tunescope.comparison import status
from tunescope.comparison.board import Board
from tunescope.errors import UserError
from tunescope.system import files, lease, run_folder
from tunescope.system.job_folder import JobFolder

AWAY = {"machine": "another", "host": "far", "pid": 1, "began": None, "token": "x", "beat": 3}
NOBODY = 2**22 + 1  # above the highest id that Linux gives a process


@pytest.fixture
def told(tmp_path):
    files.put_json(tmp_path / "config.json", {"version": 2})
    made = Board(tmp_path, "slurm", 2)
    made.expect("lora", 3)
    for name in "xyz":
        made.asked(name, "lora", f"seed {name}")
    return made


def ended(told, **statuses):
    for name, how in statuses.items():
        told.done(name, "lora", {"status": how, "dev": 0.5 if how == "done" else None, "seconds": 4.0})
    told.write("running")


def test_rates_that_diverged_are_told_beside_the_arm_and_those_that_lost_a_race_are_not(told, tmp_path):
    ended(told, x="done", y="diverged")
    assert next(status.lines(tmp_path)) == "lora  2/3 runs  best dev 0.5  diverged"
    ended(told, z="lost")
    assert next(status.lines(tmp_path)) == "lora  3/3 runs  best dev 0.5  done  diverged"


@pytest.mark.parametrize("text", ["[]", '{"arms": []}', "{"])
def test_a_file_that_is_no_state_of_a_run_is_one_line(told, tmp_path, text):
    told.write("running")
    (tmp_path / status.FILE).write_text(text)
    with pytest.raises(UserError, match=r"status\.json cannot be read"):
        next(status.lines(tmp_path))


@pytest.mark.parametrize("end", ["diverged", "out of memory", "failed"])
def test_an_arm_of_which_all_runs_are_over_says_what_became_of_it_and_that_once(told, tmp_path, end):
    ended(told, x="done", y=end, z="done")
    told.concluded("lora", end)
    told.write("finished")
    assert next(status.lines(tmp_path)) == f"lora  3/3 runs  best dev 0.5  {end}"


def test_a_worker_on_another_machine_is_at_work_and_what_it_did_before_counts_once(told, tmp_path):
    ended(told, x="done")
    for name in "xy":  # that of x is about to put its lease away
        (tmp_path / "jobs" / name).mkdir(parents=True)
        files.put_json(tmp_path / "jobs" / name / "lease.json", AWAY)
    JobFolder(tmp_path, "y").put_progress({"host": "far", "step": 5, "steps": 20, "seconds_left": 30.0})
    lines = list(status.lines(tmp_path))
    assert lines[:2] == ["lora  1/3 runs  best dev 0.5  running", "      seed y on far: step 5/20, 30 s left"]
    assert lines[-1].startswith("with the queue of slurm; when it is through") and not status.is_over(tmp_path)
    run_folder.finish(run_folder.working(tmp_path, "y"), tmp_path, "y", {"status": "done", "dev": 0.75, "seconds": 9.0})
    assert next(status.lines(tmp_path)) == "lora  2/3 runs  best dev 0.75"
    for left in tmp_path.glob("jobs/*/lease.json"):
        left.unlink()
    assert status.is_over(tmp_path)


def test_a_job_that_waits_in_a_queue_is_told_of_its_arm_until_one_of_the_arm_has_begun(told, tmp_path):
    told.write("running")
    (tmp_path / "jobs" / "x").mkdir(parents=True)
    files.put_json(JobFolder(tmp_path, "x").queue_note, {})
    lines = list(status.lines(tmp_path))
    assert lines[0] == "lora  0/3 runs  queued" and lines[-1].startswith("with the queue of slurm")
    assert not status.is_over(tmp_path)
    ended(told, y="done")
    assert next(status.lines(tmp_path)) == "lora  1/3 runs  best dev 0.5"


@pytest.mark.parametrize("end", ["done", "killed"])
def test_a_job_that_came_through_the_queue_is_no_longer_with_it(told, tmp_path, end):
    """What was handed in is noted until the next go; a worker that was killed has left its lease."""
    told.write("running")
    folder = JobFolder(tmp_path, "x")
    folder.ask({"id": "x"})
    files.put_json(folder.queue_note, {})
    assert not status.is_over(tmp_path)
    if end == "done":
        folder.put_outcome({"id": "x"}, {"status": "done"})
    else:
        files.put_json(folder.lease, lease._self() | {"pid": NOBODY})
    assert status.is_over(tmp_path)
    assert list(status.lines(tmp_path))[-1] == f"nobody works on it; to go on, type: tunescope resume {tmp_path}"


def test_a_run_that_is_told_twice_counts_once_and_the_best_of_all_stays_the_best(told, tmp_path):
    told.expect("lora", 1)  # those past an end of its rates are added as they come
    for name, dev in (("x", 0.75), ("x", 0.75), ("y", 0.5)):
        told.done(name, "lora", {"status": "done", "dev": dev, "seconds": 4.0})
    told.write("running")
    assert told.rows["lora"].seconds == [4.0, 4.0]
    assert next(status.lines(tmp_path)) == "lora  2/2 runs  best dev 0.75  done"


def test_a_finished_run_is_over_whatever_lease_was_left_behind(told, tmp_path):
    (tmp_path / "jobs" / "x").mkdir(parents=True)
    files.put_json(JobFolder(tmp_path, "x").lease, AWAY)
    told.write("finished")
    assert status.is_over(tmp_path) and "finished" in list(status.lines(tmp_path))[-1]
