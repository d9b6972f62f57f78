"""`tunescope reproduce` when processes are killed, two of them are started in one folder, or the disk is full."""

import json
import signal
import time
from pathlib import Path

import pytest
import warm

COMMAND = Path(__file__).with_name("toy_command.py")
SPARES = 5  # two workers, and new ones for those that are killed


@pytest.fixture
def start(tmp_path):
    """A `tunescope reproduce toy-recipe` in a process of its own."""
    begun = []

    def reproduce(seeds=3, workers=2):
        words = ["reproduce", "toy-recipe", "--seeds", seeds, "--workers", workers, "--out", tmp_path / "run"]
        begun.append(warm.start([COMMAND, *words], env={"TOY": str(tmp_path)}, spares=SPARES))
        return begun[-1]

    yield reproduce
    for waits in tmp_path.glob("*.waits"):  # a worker that was left behind would hold our pipes
        waits.unlink()
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def run(start):
    """(exit code, stdout, stderr) of a whole one."""

    def whole(**options):
        process = start(**options)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    return whole


def until(happened, seconds=60.0):
    last = time.monotonic() + seconds
    while not happened() and time.monotonic() < last:
        time.sleep(0.01)
    assert happened()


def pids(folder, seed):
    path = folder / f"{seed}.pids"
    return path.read_text().split() if path.exists() else []


def values(folder):
    """The numbers of the table; the recipe's are eighths."""
    return json.loads((folder / "run" / "result.json").read_text())["table"]["rows"][0]["cells"][0]["values"]


def test_a_second_process_in_the_folder_is_refused_in_one_line_and_the_first_goes_on(run, start, tmp_path):
    (tmp_path / "1.waits").touch()
    first = start()
    until(lambda: pids(tmp_path, 1))
    code, out, err = run()
    assert (code, out, err.count("\n")) == (2, "", 1) and f"error: {tmp_path / 'run'} is in use" in err
    (tmp_path / "1.waits").unlink()
    assert (first.communicate(timeout=60)[1], first.returncode) == ("", 0)
    assert values(tmp_path) == [0.0, 0.125, 0.25] and [len(pids(tmp_path, seed)) for seed in range(3)] == [1, 1, 1]


def test_a_piece_whose_worker_is_killed_once_is_tried_again(run, tmp_path):
    (tmp_path / "0.dies").write_text("x")
    code, out, err = run()
    assert (code, err) == (0, "") and "piece 3 of 3: seed 0" in out
    assert values(tmp_path) == [0.0, 0.125, 0.25]
    assert [len(pids(tmp_path, seed)) for seed in range(3)] == [2, 1, 1]


def test_a_piece_that_is_killed_twice_ends_in_one_line_and_the_same_command_goes_on(run, tmp_path):
    (tmp_path / "1.dies").write_text("xx")
    code, _, err = run()
    assert code == 2
    assert err == (
        "error: piece seed 1: its process was killed twice, most likely for want of memory; try fewer --workers. "
        "What is done is kept: to go on, type the same command again.\n"
    )
    assert run()[0] == 0 and values(tmp_path) == [0.0, 0.125, 0.25]
    assert [len(pids(tmp_path, seed)) for seed in range(3)] == [1, 3, 1]


def test_a_full_disk_ends_in_one_line_and_the_same_command_goes_on(run, tmp_path):
    (tmp_path / "2.full").touch()
    code, _, err = run(workers=1)
    folder = tmp_path / "run"
    assert (code, err) == (
        2,
        f"error: the disk is full while writing to {folder}; what was finished is kept. "
        "Mend that, then type the same command again\n",
    )
    (tmp_path / "2.full").unlink()
    assert run(workers=1)[0] == 0 and values(tmp_path) == [0.0, 0.125, 0.25]
    assert [len(pids(tmp_path, seed)) for seed in range(3)] == [1, 1, 2]


def test_after_a_kill_of_the_command_no_worker_is_left_and_the_same_command_goes_on(run, start, tmp_path):
    (tmp_path / "1.waits").touch()
    first = start(workers=1)
    until(lambda: pids(tmp_path, 1))
    first.kill()
    first.wait()
    torn = tmp_path / "run" / "units" / "a.json.tmp-1-abcd"
    torn.touch()
    until(lambda: not Path(f"/proc/{pids(tmp_path, 1)[0]}").exists())
    (tmp_path / "1.waits").unlink()
    assert run()[0] == 0 and values(tmp_path) == [0.0, 0.125, 0.25]
    assert [len(pids(tmp_path, seed)) for seed in range(3)] == [1, 2, 1] and not torn.exists()


def test_ctrl_c_ends_it_and_its_workers_without_a_word_of_theirs(run, start, tmp_path):
    (tmp_path / "1.waits").touch()
    first = start(workers=1)
    until(lambda: pids(tmp_path, 1))
    first.send_signal(signal.SIGINT)
    assert first.communicate(timeout=60)[1] == "\nstopped\n" and first.returncode == 130
    assert not Path(f"/proc/{pids(tmp_path, 1)[0]}").exists()
    (tmp_path / "1.waits").unlink()
    assert run()[0] == 0 and values(tmp_path) == [0.0, 0.125, 0.25]
