"""Where a comparison is: the time that is left is worked out by hand, and what is written is what is read."""

import io
import json
import os
import socket

import pytest

from tunescope.comparison import board, progress, status
from tunescope.comparison.board import Board, Row, seconds_left, whole
from tunescope.errors import UserError
from tunescope.system import files


def row(arm, expected, seconds=(), now=()):
    done = {f"{arm}{index}": "done" for index in range(len(seconds))}
    return Row(
        arm, expected, done=done, seconds=list(seconds), now={f"{arm}-{left}": {"seconds_left": left} for left in now}
    )


@pytest.mark.parametrize(
    ("rows", "slots", "left"),
    [
        ([row("a", 4)], 1, None),  # nothing is known yet
        ([row("a", 4, [10.0, 20.0])], 1, 2 * 15.0),
        ([row("a", 4, [10.0, 20.0])], 2, 15.0),
        ([row("a", 4, [10.0, 20.0], [7.0])], 1, 7.0 + 15.0),
        ([row("a", 3, [10.0, 20.0], [9.0])], 4, 9.0),  # a run is no shorter for more slots
        ([row("a", 2, [10.0]), row("b", 1, [30.0]), row("c", 1)], 1, 10.0 + 20.0),  # c as the mean of arms
        ([row("a", 2, [1.0, 3.0])], 1, 0.0),
    ],
)
def test_the_time_left_is_what_the_runs_to_come_take(rows, slots, left):
    assert seconds_left(rows, slots) == left


def test_the_whole_run_in_a_line():
    assert whole([row("a", 4, [60.0, 60.0])], 1) == "whole run: 2 of 4 runs done, about 2 min left"
    assert whole([row("a", 4, [60.0, 60.0])], 2) == "whole run: 2 of 4 runs done, about 1 min left on 2 slots"
    assert whole([row("a", 2, [60.0, 60.0])], 2) == "whole run: 2 of 2 runs done"


def test_what_is_written_is_what_status_reads(tmp_path):
    files.put_json(tmp_path / "config.json", {"version": 2})
    told = Board(tmp_path, "local", 1)
    told.expect("lora", 3)
    told.expect("soft", None)
    for name in ("x", "y", "z"):
        told.asked(name, "lora", f"seed {name}")
    told.progress("x", "lora", "seed x", {"step": 5, "steps": 20, "loss": 1.0, "best": None, "seconds_left": 30.0})
    told.done("y", "lora", {"status": "done", "dev": 0.75, "seconds": 8.0})
    told.done("z", "lora", {"status": "paused", "dev": 0.9, "seconds": 8.0})  # it goes on later
    told.write("running")
    files.put_json(tmp_path / "LOCK", {"pid": os.getpid(), "host": socket.gethostname(), "started": ""})
    lines = list(status.lines(tmp_path))
    assert lines[:3] == [
        "lora  1/3 runs  best dev 0.75  running",
        "      seed x: step 5/20, 30 s left",
        "soft  refused",
    ]
    assert lines[3] == "whole run: 1 of 3 runs done, 1 more begun and waiting, about 38 s left"
    assert lines[4].startswith(f"led by process {os.getpid()} on ") and not status.is_over(tmp_path)
    (tmp_path / "LOCK").unlink()
    lines = list(status.lines(tmp_path))
    assert lines[2] == "whole run: 1 of 3 runs done, 1 more begun and waiting, about 16 s left"  # seed x is begun anew
    assert lines[3] == f"nobody works on it; to go on, type: tunescope resume {tmp_path}" and status.is_over(tmp_path)
    told.write("finished")
    assert list(status.lines(tmp_path))[-1] == f"finished; to see what came of it, type: tunescope report {tmp_path}"


def test_between_runs_it_is_written_no_more_than_every_two_seconds(tmp_path):
    now = [0.0]
    told = Board(tmp_path, "local", 1, clock=lambda: now[0])
    told.expect("lora", 1)
    for now[0], seen in ((0.0, 1), (1.9, 1), (2.0, 3), (3.9, 3), (4.0, 5)):
        at = {"step": int(now[0]) + 1, "seconds_left": 1.0}
        told.progress("x", "lora", "seed 0", at)
        assert json.loads((tmp_path / board.FILE).read_text())["arms"][0]["now"]["x"]["step"] == seen


def test_a_disk_that_takes_no_status_stops_nothing(tmp_path):
    told = Board(tmp_path / "nowhere", "local", 1)
    told.write("running")
    assert not (tmp_path / "nowhere").exists()


def test_without_a_run_the_line_says_what_to_type(tmp_path):
    with pytest.raises(UserError, match="is not the folder of a run"):
        list(status.lines(tmp_path))
    files.put_json(tmp_path / "config.json", {"version": 2})
    with pytest.raises(UserError, match=f"has not begun its first run.*; type: tunescope resume {tmp_path}"):
        list(status.lines(tmp_path))


def test_lines_tell_the_whole_run_now_and_then_and_a_table_always(monkeypatch):
    now, out = [100.0], io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    lines = progress.Lines(out)
    for now[0] in (110.0, 131.0, 140.0):
        lines.whole(f"whole run at {now[0]:.0f}")
    assert out.getvalue() == "whole run at 131\n"
    table = progress.LiveTable(["lora"])
    table.whole("whole run: 1 of 3 runs done")
    assert "whole run: 1 of 3 runs done" in [str(part) for part in table.render().renderables]
