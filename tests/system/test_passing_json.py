"""What is of use while it is new is whole or absent, and a disk that takes nothing keeps nothing of it either."""

import json
import resource

import pytest

from tunescope.comparison.board import Board
from tunescope.system.job_folder import JobFolder


@pytest.fixture
def full_disk():
    """The kernel refuses every byte of every file, once it has been made."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_what_was_there_and_nothing_beside_it(tmp_path, request):
    board, job = Board(tmp_path, "local", 1), JobFolder(tmp_path, "one")
    job.path.mkdir(parents=True)
    board.write("running")
    job.put_progress({"step": 1})
    before = (tmp_path / "status.json").read_bytes()
    request.getfixturevalue("full_disk")
    board.write("finished")
    job.put_progress({"step": 2})
    assert (tmp_path / "status.json").read_bytes() == before and job.progress() == {"step": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs", "status.json"]
    assert [path.name for path in job.path.iterdir()] == ["progress.json"]
    assert json.loads(before)["state"] == "running"
