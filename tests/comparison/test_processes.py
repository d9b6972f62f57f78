"""A comparison in several processes is the one in one process, however they are begun."""

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import commands
import pytest
import tinyrun
import torch
import warm

from tunescope.comparison import procedure
from tunescope.errors import Note, UserError
from tunescope.system import ranks, run_folder, sealed_json

ARMS = ["zero-shot", "lora:rank=2", "prefix:length=3", "soft:length=4"]
FEW = ["--steps", 4, "--batch-size", 6, "--trials", 1, "--seeds", 1, "--beyond", 0, "--eval-every", 2]


def test_two_processes_compare_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = tinyrun.write(tmp_path)
    words = ["compare", model, data["train"], "--dev", data["dev"], "--test", data["test"], *FEW, "--arms", *ARMS]
    words += ["--forgetting", "none"]
    around = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(warm.free_port())}
    around |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}  # as torchrun tells its processes
    started = [
        warm.start(
            ["-m", "tunescope", *words, "--processes", 2, "--out", tmp_path / "two"],
            env=around | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert "Verdict" in said[0][0] and not said[1][0]
    assert sorted(path.name for path in tmp_path.glob("*two*")) == ["two"]  # what the second wrote is gone

    code, _, _ = commands.call(monkeypatch, capsys, *words, "--workers", 1, "--together", 1, "--out", tmp_path / "one")
    assert code == 0
    one, two = (run_folder.read_results(tmp_path / name)["arms"] for name in ("one", "two"))
    assert [arm["name"] for arm in one] == [arm["name"] for arm in two]
    for alone, shared in zip(one, two, strict=True):
        assert (alone["status"], alone["score"]) == (shared["status"], shared["score"]) == ("done", alone["score"])
        for before, after in zip(alone["runs"], shared["runs"], strict=True):
            assert before["id"] == after["id"] and before["stats"] == after["stats"]
            losses = [[point["loss"] for point in run["curve"]] for run in (before, after)]
            assert losses[0] == pytest.approx(losses[1], rel=0, abs=1e-5)
    kept = sealed_json.read(tmp_path / "two" / "arms" / two[1]["runs"][0]["id"] / "result.json")
    assert kept["status"] == "done"


@pytest.mark.parametrize(("asked", "begun", "found"), [(0, None, 1), (3, None, 3), (0, "4", 4), (4, "4", 4)])
def test_how_many_processes_there_are(
    asked: int, begun: str | None, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if begun is not None:
        monkeypatch.setenv("WORLD_SIZE", begun)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ranks.count(asked) == found


def test_another_number_than_was_begun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match=r"--processes 8: 2 were begun .* torchrun --nproc-per-node 8 -m tunescope"):
        ranks.count(8)


def test_one_process_that_was_to_be_several_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `accelerate launch --cpu --num_processes 2` leaves in the environment of the one process that it begins."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    with pytest.warns(Note, match="accelerate launch has begun this process alone"):
        assert ranks.count(0) == 1


def test_several_processes_have_no_workers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    model, data = tinyrun.write(tmp_path)
    words = ["compare", model, data["train"], "--workers", 2, "--out", tmp_path / "run"]
    code, _, err = commands.call(monkeypatch, capsys, *words)
    assert code == 2 and "--workers 2: with several processes there is one worker" in err


def test_processes_from_python_are_begun_from_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(UserError, match="torchrun --nproc-per-node 2 SCRIPT"), ranks.joined(2, "cpu"):
        pass


@pytest.mark.parametrize(
    ("gpus", "own", "fits"), [(2, 2, "--processes 2"), (1, 1, "--device cpu"), (0, 0, "--device cpu")]
)
def test_more_processes_than_gpus_are_refused(gpus: int, own: int, fits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3, "RANK": own, "LOCAL_RANK": own}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(UserError, match=f"3 are on this machine, .* it has {gpus}. Type: {fits}$"):
        ranks.joined(3, "cuda").__enter__()


def test_each_process_has_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    for name, value in {"WORLD_SIZE": 2, "RANK": 1, "LOCAL_RANK": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with ranks.joined(2, "cuda"):
        assert taken == [1]


SAYS = "import os, sys; print('out', os.environ['RANK']); print('err', os.environ['RANK'], file=sys.stderr); "


@pytest.mark.parametrize(
    ("code", "ended", "shown"),
    [
        ("", 0, ""),
        ("sys.exit(3 if os.environ['RANK'] == '1' else __import__('time').sleep(60))", 3, "err 1"),
        ("sys.exit(2)", 2, ""),
        ("os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else __import__('time').sleep(60)", 137, "err 1"),
    ],
)
def test_the_first_speaks_for_all_and_one_that_fails_alone_for_itself(
    code: str, ended: int, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ranks.begun(2, ["-S", "-c", SAYS + code]) == ended
    out, err = capfd.readouterr()
    assert "out 1" not in out and ("err 1" in err) == bool(shown)


def test_another_process_reads_what_the_first_found_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    (folder / "arms").mkdir(parents=True)
    (folder / "arms" / "kept").write_text("as it was")
    (folder / "LOCK").write_text("the first one's")
    monkeypatch.setenv("RANK", "1")
    with ranks.own_folder(folder) as mine:
        assert (mine / "arms" / "kept").read_text() == "as it was" and not (mine / "LOCK").exists()
        (mine / "arms" / "new").write_text("its own")
    assert sorted(os.listdir(folder / "arms")) == ["kept"] and os.listdir(tmp_path) == ["run"]
    monkeypatch.setenv("RANK", "0")
    with ranks.own_folder(folder) as mine:
        assert mine == folder


TEAM = """
import os, signal, sys, time
from pathlib import Path
from tunescope.system import ranks
folder = Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
ranks.GRACE = 0.2
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a script runs in the background ignores it
if not ranks.is_begun():
    sys.exit(ranks.begun(2, [__file__, str(folder)]))
with ranks.own_folder(folder) as mine:
    (folder / f"{ranks.rank()}.begun").touch()
    while True:
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("number", "left"), [(signal.SIGTERM, []), (signal.SIGINT, []), (signal.SIGKILL, [".run.process-1"])]
)
def test_a_kill_of_the_one_that_began_them_leaves_nothing_that_the_next_does_not_sweep(
    number: signal.Signals, left: list[str], tmp_path: Path
) -> None:
    folder, script = tmp_path / "run", tmp_path / "team.py"
    folder.mkdir()
    script.write_text(TEAM)
    with subprocess.Popen([sys.executable, script, folder], start_new_session=True) as first:
        try:
            while len(list(folder.glob("*.begun"))) < 2:
                assert first.poll() is None
                time.sleep(0.02)
            if number == signal.SIGKILL:
                os.killpg(first.pid, number)
            else:
                first.send_signal(number)
            assert first.wait(20) == (143 if number == signal.SIGTERM else -number)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(first.pid, signal.SIGKILL)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == left
    ranks.swept(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "team.py"]


def test_who_holds_the_folder_has_swept_it(tmp_path: Path) -> None:
    (tmp_path / ".r[u]n.process-1").mkdir()
    (tmp_path / ".other.process-1").mkdir()
    (tmp_path / "r[u]n").mkdir()
    with procedure.held(tmp_path / "r[u]n", 1):
        assert sorted(path.name for path in tmp_path.glob(".*.process-*")) == [".other.process-1"]
