"""A lease belongs to one at a time; that of a process that is gone is taken over, and whoever lost it is told.

The oracle is the operating system: processes that are really killed, and files that really stop changing.
"""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import warm

from tunescope.system import files, lease, lock

HOLDS = """
import os, signal, sys, time
from pathlib import Path
from tunescope.system import lease
path = Path(sys.argv[1])
with lease.held(path, dead=lambda: path.with_name("dead"), lost=lambda: os._exit(75)) as mine:
    print(mine, flush=True)
    time.sleep(float(sys.argv[2]))
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lease.json"


def holding(path: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"dead": lambda: path.with_name("dead"), "lost": lambda: None}
    return lease.held(path, **{**given, **options})


def of_another_machine(path: Path, beat: int = 0) -> None:
    told = {"token": "theirs", "host": "far", "machine": "far boot", "pid": 1, "began": 1.0, "beat": f"{beat:012d}"}
    path.write_text(json.dumps(told) + "\n")


def test_of_two_one_has_it_and_afterwards_it_is_gone(path: Path) -> None:
    with holding(path) as first, holding(path) as second:
        assert (first, second) == (True, False)
    assert not path.exists() and not list(path.parent.glob("*.tmp-*"))


def test_what_a_living_process_of_this_machine_has_is_not_taken(path: Path) -> None:
    process = warm.start(["-c", HOLDS, path, 2, "ends"])
    while not path.exists():
        time.sleep(0.01)
    with holding(path) as mine:
        assert not mine
    process.communicate(timeout=60)
    with holding(path) as mine:
        assert mine


def test_what_a_killed_process_has_is_taken_at_once_and_its_lease_is_kept_as_a_death(path: Path) -> None:
    assert warm.run(["-c", HOLDS, path, 0, "killed"]).returncode == -9
    assert path.exists()
    start = time.monotonic()
    with holding(path) as mine:
        assert mine and time.monotonic() - start < 1.0
    assert path.with_name("dead").exists()


def test_another_machine_s_lease_is_taken_when_its_beat_stands_still(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lease, "PATIENCE", 1.5)
    of_another_machine(path)
    start = time.monotonic()
    with holding(path) as mine:
        assert mine and time.monotonic() - start >= 1.5
    assert json.loads(path.with_name("dead").read_text())["token"] == "theirs"


def test_another_machine_s_lease_is_not_taken_while_it_beats(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lease, "PATIENCE", 5.0)
    of_another_machine(path)
    beating = threading.Timer(0.8, of_another_machine, (path, 1))
    beating.start()
    with holding(path) as mine:
        assert not mine
    beating.join()


def test_who_was_taken_to_be_gone_is_told_and_leaves_the_next_one_s_lease(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lease, "BEAT", 0.1)
    lost = threading.Event()
    with holding(path, lost=lost.set):
        assert lease.put_away(path, path.with_name("aside"))
        of_another_machine(path)
        assert lost.wait(10)
    assert json.loads(path.read_text())["token"] == "theirs"


def test_a_lease_that_was_taken_meanwhile_is_put_back(path: Path) -> None:
    of_another_machine(path)
    assert not lease.put_away(path, path.with_name("aside"), {"token": "an older one"})
    assert json.loads(path.read_text())["token"] == "theirs" and not path.with_name("aside").exists()


def test_it_beats_though_another_holds_its_file_for_a_moment_as_it_begins(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lease, "BEAT", 0.1)
    lost, taken, aside = threading.Event(), lease._taken, path.with_name("aside")

    def held_away(*given: Any) -> Any:
        found = taken(*given)
        os.rename(path, aside)
        threading.Timer(0.05, os.rename, (aside, path)).start()
        return found

    monkeypatch.setattr(lease, "_taken", held_away)
    with holding(path, lost=lost.set) as mine:
        time.sleep(0.6)
        found = lease.holder(path)
        assert mine and not lost.is_set() and found and int(found["beat"]) > 0


@pytest.mark.parametrize("what", ["write_text", "link"])
def test_nothing_is_left_of_a_lease_that_could_not_be_taken(path: Path, monkeypatch: Any, what: str) -> None:
    def full(*given: Any, **more: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((Path, what) if what == "write_text" else (os, what)), full)
    with pytest.raises(OSError, match="No space left"), holding(path):
        pass
    assert not list(path.parent.iterdir())


def test_the_beat_goes_on_while_it_is_held(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lease, "BEAT", 0.05)
    with holding(path):
        first = lease.holder(path)
        time.sleep(0.5)
        assert first and lease.holder(path)["beat"] > first["beat"]  # type: ignore[index]


def test_a_lease_of_a_process_of_this_machine_that_is_gone_is_nobody_s_without_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    assert not lease.may_live(path)
    mine = {"token": "t", **lease._self(), "beat": 0}
    files.put_json(path, mine)
    assert lease.may_live(path)
    files.put_json(path, mine | {"began": 1.0})  # the number was another's
    assert not lease.may_live(path)
    files.put_json(path, mine | {"machine": "far", "began": 1.0})
    assert lease.may_live(path)  # nothing is known of it


def test_a_lock_of_a_number_that_another_process_has_now_is_nobody_s(tmp_path: Path) -> None:
    with lock.locked(tmp_path):
        held = lock.holder(tmp_path)
        assert held and held["pid"] == os.getpid()
    files.put_json(tmp_path / "LOCK", held | {"began": held["began"] - 100})
    assert lock.holder(tmp_path) is None


def test_a_lease_that_one_look_does_not_find_is_not_lost_for_it_may_be_being_put_back(tmp_path, monkeypatch):
    looks, losses, plain = [], [], lease.holder

    def gone_once(path):
        looks.append(path)
        return None if len(looks) == 3 else plain(path)

    monkeypatch.setattr(lease, "BEAT", 0.01)
    monkeypatch.setattr(lease, "holder", gone_once)
    with lease.held(tmp_path / "lease", dead=lambda: tmp_path / "dead", lost=lambda: losses.append(1)) as has:
        until = time.monotonic() + 20
        while len(looks) < 8 and time.monotonic() < until and not losses:
            time.sleep(0.01)
        assert has and not losses and len(looks) >= 8
