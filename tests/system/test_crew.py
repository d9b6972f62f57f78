"""Pieces spread over worker processes: killed ones cost themselves alone, and the others still run side by side.

The oracle of the width is a meeting: two pieces wait for one another, which only pieces at work at once can.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from tunescope.errors import UserError
from tunescope.system import forkserver
from tunescope.system.crew import Crew, crew, tell


def work(piece):
    """What a piece says, done in a worker; the path is where it leaves its marks."""
    what, path = piece
    with open(path / f"{what}.pids", "a") as log:
        log.write(f"{os.getpid()}\n")
    if what.startswith("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "once" and len(pids(path, what)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "fails":
        raise ZeroDivisionError("oops")
    if what.startswith("meets"):
        tell(what)
        return what if met(path, what) else f"{what} alone"
    return what


def met(path, what):
    """Whether the other of the pair, "meets-0a" and "meets-0b", was at work before this one gave up."""
    other = path / f"{what[:-1]}{'ba'[what[-1] == 'b']}.pids"
    return until(other.exists)


def until(happened, seconds=20):
    last = time.monotonic() + seconds
    while not happened() and time.monotonic() < last:
        time.sleep(0.01)
    return happened()


def pids(path, what):
    return (path / f"{what}.pids").read_text().split()


def nothing():
    """What a worker does first."""


def nothing_of(given):
    """What a worker does first that is given something."""


def unready():
    """What a worker does first that finds something else than it was begun with."""
    raise UserError("rows.jsonl was changed")


@pytest.fixture
def made():
    """Of the processes of a comparison; a crew of `spawn`ed ones, as of recipes, is made below."""
    with crew(2, forkserver.context("tunescope.comparison.preload"), nothing) as found:
        yield found


def ran(made, path, *names, **options):
    done = []
    killed = made.run(work, [(name, path) for name in names], lambda piece, found: done.append(found), **options)
    return done, [name for name, _ in killed]


def test_after_a_kill_the_other_pieces_still_run_side_by_side(made, tmp_path):
    done, killed = ran(made, tmp_path, "once", "first", "meets-0a", "meets-0b", "meets-1a", "meets-1b")
    assert sorted(done) == sorted(["once", "first", "meets-0a", "meets-0b", "meets-1a", "meets-1b"]) and killed == []
    assert done[-1] == "once" and len(set(pids(tmp_path, "once"))) == 2  # again, when the others were through
    done, _ = ran(made, tmp_path, "meets-2a", "meets-2b")
    assert sorted(done) == ["meets-2a", "meets-2b"]  # the next phase has its width too


def test_a_piece_that_is_killed_twice_is_named_and_is_not_tried_again(made, tmp_path):
    done, killed = ran(made, tmp_path, "dies", "other", "another")
    assert sorted(done) == ["another", "other"] and killed == ["dies"]
    assert len(set(pids(tmp_path, "dies"))) == 2


def test_a_kill_takes_no_neighbour_with_it(made, tmp_path):
    ran(made, tmp_path, "meets-0a", "dies", "meets-0b")
    assert len(pids(tmp_path, "meets-0a")) == len(pids(tmp_path, "meets-0b")) == 1


def test_a_worker_that_is_killed_while_idle_is_replaced(made, tmp_path):
    ran(made, tmp_path, "meets-0a", "meets-0b")
    for name in ("meets-0a", "meets-0b"):
        pid = int(*pids(tmp_path, name))
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))  # its pool has seen it
    done, killed = ran(made, tmp_path, "first", "second", "other")
    assert sorted(done) == ["first", "other", "second"] and killed == []


def test_what_a_worker_tells_is_heard(made, tmp_path):
    heard = []
    ran(made, tmp_path, "meets-0a", "meets-0b", on_event=heard.append)
    ran(made, tmp_path, "other", "another", on_event=heard.append)
    assert sorted(heard) == ["meets-0a", "meets-0b"]


def test_an_error_in_a_piece_is_raised_and_no_process_is_left(tmp_path):
    left = []

    def fails():
        with crew(2, multiprocessing.get_context("spawn"), nothing) as made:
            ran(made, tmp_path, "meets-0a", "meets-0b")
            left.extend(int(*pids(tmp_path, name)) for name in ("meets-0a", "meets-0b"))
            ran(made, tmp_path, "fails", "other")

    with pytest.raises(ZeroDivisionError, match="oops"):
        fails()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in left)


def test_no_process_starts_before_there_is_a_piece_for_it(tmp_path):
    made = Crew(2, multiprocessing.get_context("spawn"), nothing)
    assert made.run(work, [], lambda *_: None) == [] and made.team == []
    made.run(work, [("other", tmp_path)], lambda *_: None)
    assert len(made.team) == 1
    made.close()
    assert made.team == []


def test_a_worker_that_is_not_ready_ends_the_run_with_its_own_words(tmp_path):
    with (
        crew(2, forkserver.context("tunescope.comparison.preload"), unready) as made,
        pytest.raises(UserError, match=r"^rows.jsonl was changed$"),
    ):
        ran(made, tmp_path, "first", "other")
    assert not list(tmp_path.iterdir())


class Ends:
    """What ends the process that reads it, where the path is there."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return ends_if_there, (self.path,)


def ends_if_there(path):
    if path.exists():
        os._exit(1)
    return path


def test_a_worker_that_ends_before_it_begins_where_others_have_begun_was_killed(tmp_path):
    with crew(1, multiprocessing.get_context("spawn"), bool, (Ends(tmp_path / "ends"),)) as made:
        assert ran(made, tmp_path, "first") == (["first"], [])
        (tmp_path / "ends").touch()
        pid = int(*pids(tmp_path, "first"))
        os.kill(pid, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{pid}"))
        assert ran(made, tmp_path, "second") == ([], ["second"])


def test_a_first_worker_that_ends_over_what_it_is_given_has_not_begun(tmp_path):
    (tmp_path / "ends").touch()
    with (
        crew(1, multiprocessing.get_context("spawn"), bool, (Ends(tmp_path / "ends"),)) as made,
        pytest.raises(UserError, match="a worker ended before it began"),
    ):
        ran(made, tmp_path, "first")


class Slow:
    """What takes as long to read as the import of torch does."""

    def __reduce__(self):
        return time.sleep, (2.0,)


def test_workers_that_import_for_themselves_begin_side_by_side_whatever_they_are_given(tmp_path):
    """A process is handed its arguments through a pipe of 64 KiB: with more in them its parent waits until it reads."""
    given = (Slow(), bytes(1_000_000))
    with crew(2, multiprocessing.get_context("spawn"), nothing_of, (given,)) as made:
        made.submit(work, [("meets-0a", tmp_path), ("meets-0b", tmp_path)])
        began = time.monotonic()
        assert [what for what, *_ in made.turn()][:2] == ["begun", "begun"]
        assert time.monotonic() - began < 2.0  # a third of a second of it is the turn's own
        done = []
        while made.busy:
            done += [value for what, _, value in made.turn() if what == "done"]
    assert sorted(done) == ["meets-0a", "meets-0b"]


def test_a_script_without_a_main_of_its_own_is_told_what_it_lacks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing\n"
        "from tunescope.system.crew import crew\n"
        "with crew(2, multiprocessing.get_context('spawn'), print) as made:\n"
        "    made.run(str, [1, 2], print)\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 1
    assert "\ntunescope.errors.UserError: a worker ended before it began." in ran.stderr
    assert "`if __name__ == '__main__':`" in ran.stderr
