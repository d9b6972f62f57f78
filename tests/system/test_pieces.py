"""Pieces of a run whose leading process went away: what they left does not count against them in the next go."""

import os

import warm

from tunescope.system import far_jobs, files, lease, pieces, sealed_json
from tunescope.system.job_folder import DEATHS, JobFolder

LEAVES = """
import os, sys
from pathlib import Path
from tunescope.system import lease
with lease.held(Path(sys.argv[1]), dead=Path, lost=lambda: None):
    os._exit(0)
"""


def test_a_lease_of_a_process_that_is_gone_and_deaths_before_it_are_cleared_and_a_live_one_stays(tmp_path):
    gone, live = JobFolder(tmp_path, "gone"), JobFolder(tmp_path, "live")
    for one in (gone, live):
        one.ask({"what": "piece"})
        for _ in range(DEATHS):
            one.death().touch()
    assert warm.run(["-c", LEAVES, gone.lease]).returncode == 0 and gone.lease.exists()
    with lease.held(live.lease, dead=live.death, lost=lambda: os._exit(1)) as is_mine:
        assert is_mine
        far_jobs.begin_anew(tmp_path)
        assert live.lease.exists()
    assert not gone.lease.exists() and (gone.deaths(), live.deaths()) == (0, DEATHS)


def test_a_piece_waits_in_the_queue_until_it_has_begun_or_is_done(tmp_path):
    asked = {"what": "seed", "named": "3"}
    one = JobFolder(tmp_path, "x")
    one.ask(asked)
    assert pieces.is_over(tmp_path)
    files.put_json(one.queue_note, {"cluster": "slurm", "job": "7"})
    assert next(pieces.lines(tmp_path)) == "seed 3: queued" and not pieces.is_over(tmp_path)
    with lease.held(one.lease, dead=one.death, lost=lambda: os._exit(1)):
        assert next(pieces.lines(tmp_path)).startswith("seed 3: on ") and not pieces.is_over(tmp_path)
    assert next(pieces.lines(tmp_path)) == "seed 3: queued"  # put away, and nothing came of it
    one.put_outcome(asked, {"numbers": 1})
    assert next(pieces.lines(tmp_path)).startswith("nobody leads it") and pieces.is_over(tmp_path)


def test_a_search_is_finished_where_its_results_are_whole_and_its_page_is_there(tmp_path):
    anew = ["nobody leads it; to go on, type the same command again"]
    sealed_json.put(tmp_path / "results.json", {"searches": []})
    assert list(pieces.lines(tmp_path)) == anew
    (tmp_path / "report.html").touch()
    assert list(pieces.lines(tmp_path)) == [f"finished: see {tmp_path / 'report.html'}"]
    (tmp_path / "results.json").write_text('{"half":')
    assert list(pieces.lines(tmp_path)) == anew
