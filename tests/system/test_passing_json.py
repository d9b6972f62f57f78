"""What is of use while it is new is whole or absent, and a disk that takes nothing keeps nothing of it either."""

import json
import resource
from contextlib import contextmanager

from tunescope.comparison.board import Board
from tunescope.system.job_folder import JobFolder


@contextmanager
def full_disk():
    """The kernel refuses every byte of every file; within the test alone, for pytest may write to one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_what_was_there_and_nothing_beside_it(tmp_path):
    board, job = Board(tmp_path, "local", 1), JobFolder(tmp_path, "one")
    job.path.mkdir(parents=True)
    board.write("running")
    job.put_progress({"step": 1})
    before = (tmp_path / "status.json").read_bytes()
    with full_disk():
        board.write("finished")
        job.put_progress({"step": 2})
    assert (tmp_path / "status.json").read_bytes() == before and job.progress() == {"step": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs", "status.json"]
    assert [path.name for path in job.path.iterdir()] == ["progress.json"]
    assert json.loads(before)["state"] == "running"
