"""What no verb has foreseen ends in one line, and Ctrl-C in one word, from the first import on."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import commands
import pytest
import tinyrun
import torch
import warm

from tunescope.cli import app, fault, output
from tunescope.comparison import run
from tunescope.comparison.status import lines as status_lines
from tunescope.errors import UserError
from tunescope.system import interrupts
from tunescope.trial.train.microbatches import OutOfMemory


def verb_that(monkeypatch, problem):
    """`tunescope` raises it, whatever is typed."""

    def called(*given, **named):
        raise problem

    monkeypatch.setattr(app, "app", called)


def test_a_fault_of_ours_is_one_line_with_a_file_to_send_and_exit_code_70(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verb_that(monkeypatch, KeyError("n\x1b]0;x" + "y" * 10_000))
    code, out, err = commands.call(monkeypatch, capsys, "arms", "a b")
    (kept,) = tmp_path.iterdir()
    assert (code, out, err.count("\n")) == (70, "", 1) and str(kept) in err and "\x1b" not in err and len(err) < 600
    told = kept.read_text()
    assert "command: tunescope arms 'a b'" in told and "torch 2" in told
    assert "Traceback" in told and "in called" in told and told.rstrip().endswith("y'")


@pytest.mark.parametrize(
    ("problem", "code", "status", "told"),
    [
        (ZeroDivisionError("oops"), 70, "failed", "error: no arm finished, by a fault of tunescope, .*oops"),
        (MemoryError("no room"), 2, "out of memory", "error: no arm finished; zero-shot, out of memory: .*no room"),
        (UserError("no such"), 2, "refused", "error: every arm was refused; zero-shot: .*no such"),
        (None, 0, "done", ""),
    ],
)
def test_a_comparison_in_which_no_arm_is_done_ends_so_when_all_is_written(
    monkeypatch, capsys, tmp_path, problem, code, status, told
):
    model, data = tinyrun.write(tmp_path)
    plain = run._untrained

    def untrained(*given):
        if problem is not None:
            raise problem
        return plain(*given)

    monkeypatch.setattr(run, "_untrained", untrained)
    words = [model, data["train"], "--arms", "zero-shot", "--seeds", "1", "--workers", "1", "--out", tmp_path / "run"]
    for verb in (["compare", *words], ["resume", tmp_path / "run", "--workers", "1"]):
        ended, out, err = commands.call(monkeypatch, capsys, *verb)
        assert ended == code and ("page: " in out) == (status != "refused") and re.search(told, err)
    assert ("no artifact: no arm finished" in out) == (status not in ("done", "refused"))
    assert {(tmp_path / "run" / name).exists() for name in ("results.json", "report.html")} == {status != "refused"}
    board = json.loads((tmp_path / "run" / "status.json").read_text())
    (row,) = board["arms"]
    assert row["status"] == status and board["state"] == "finished"
    shown = next(status_lines(tmp_path / "run"))
    assert shown.split("  ")[1:] == ["1/1 runs", *(part for part in shown.split("  ") if "best" in part), status]


def test_a_worker_that_died_is_no_fault_of_ours(tmp_path):
    lost = {"name": "lora", "status": "failed", "reason": "seed 0: its worker died 3 times; see jobs/1/log.txt"}
    with pytest.raises(UserError, match=r"^no arm finished; lora, failed: seed 0: its worker died 3 times"):
        output.check_finished(tmp_path, {"arms": [lost]})
    with pytest.raises(SystemExit) as ended:
        output.check_finished(tmp_path, {"arms": [lost, lost | {"reason": "KeyError: 1 (see arms/ab.error.txt)"}]})
    assert ended.value.code == 70


def test_where_no_file_can_be_written_the_fault_is_told_at_once(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert fault.keep(ZeroDivisionError("by zero"), []) is None
    assert "ZeroDivisionError: by zero" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTDIR, errno.EROFS])
def test_an_error_of_the_disk_that_no_verb_names_is_one_line(monkeypatch, capsys, number):
    verb_that(monkeypatch, OSError(number, os.strerror(number), "runs/a"))
    code, _, err = commands.call(monkeypatch, capsys, "arms")
    assert code == 2 and err.count("\n") == 1 and os.strerror(number) in err and "type the same command again" in err


CUDA = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 14.56 GiB of which 2.19 MiB is "
    "free. Process 7 has 14.55 GiB memory in use. See documentation for Memory Management"
)


@pytest.mark.parametrize(
    ("problem", "words", "told"),
    [
        (
            torch.OutOfMemoryError(CUDA),
            ["compare", "m", "d"],
            "error: the memory of GPU 1 has ended (CUDA out of memory. Tried to allocate 20.00 MiB). Type the same "
            "command with --load bfloat16 or --load 8bit or --load 4bit or --batch-size auto or --device cpu\n",
        ),
        (
            torch.OutOfMemoryError(CUDA),
            ["check", "d", "--load", "4bit", "--batch-size=auto"],
            "Type the same command with --device cpu\n",
        ),
        (
            torch.OutOfMemoryError(CUDA),
            ["compare", "m", "d", "--load=8bit", "--batch-size", "4"],
            "Type the same command with --load 4bit or --device cpu\n",
        ),
        (
            torch.OutOfMemoryError(CUDA),
            ["compare", "m", "d", "--device-map", "auto"],
            "Type the same command with --load bfloat16 or --batch-size auto\n",
        ),
        (
            RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
            ["compare", "m", "d", "--processes", "2", "--load", "bfloat16"],
            "the memory of the GPU has ended (cuDNN error: CUDNN_STATUS_ALLOC_FAILED). "
            "Type the same command with --device cpu\n",
        ),
        (
            torch.OutOfMemoryError(CUDA),
            ["resume", "RUN"],
            "Free it, and type the same command again; or begin elsewhere",
        ),
        (torch.OutOfMemoryError(CUDA), ["search", "RUN"], "CUDA_VISIBLE_DEVICES= before the same command"),
        (
            torch.OutOfMemoryError("MPS backend out of memory (MPS allocated: 18.00 GB)."),
            ["compare", "m", "d"],
            "the memory of the GPU has ended (MPS backend out of memory (MPS allocated: 18.00 GB))",
        ),
        (
            RuntimeError("CUDA error: out of memory"),
            ["anchors", "m", "d"],
            "the memory of the GPU has ended (CUDA error: ",
        ),
        (MemoryError(), ["probe", "pattern"], "the memory of this machine has ended. Take a smaller model"),
        (
            OutOfMemory("the device ran out of memory: can't allocate memory"),
            ["compare", "m", "d"],
            "the memory of this machine has ended (the device ran out of memory: can't allocate memory). "
            "Type the same command with --load bfloat16 or --load 8bit or --load 4bit or --batch-size auto\n",
        ),
    ],
)
def test_memory_that_ends_is_one_line_with_options_that_the_verb_has(monkeypatch, capsys, problem, words, told):
    def called(*given, **named):
        raise problem

    monkeypatch.setattr(app.App, "__call__", called)
    code, out, err = commands.call(monkeypatch, capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and told in err


SLOW = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "cyclopts":
            print("importing", flush=True)
            time.sleep(30)
sys.meta_path.insert(0, Slow())
from tunescope.__main__ import main
main()
"""


def test_ctrl_c_while_the_command_line_is_imported_is_one_word():
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell's children ignore it
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == "\nstopped\n" and process.returncode == 130


LEAVING = """
import atexit, os, sys
sys.argv = ["tunescope", "arms"]
atexit.register(lambda: os.kill(os.getpid(), int(os.environ["SENT"])))
from tunescope.__main__ import main
main()
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_what_comes_when_all_is_said_prints_nothing(sent, code):
    ended = warm.run(["-c", LEAVING], env={"SENT": str(int(sent))})
    assert (ended.returncode, ended.stderr) == (code, "") and "lora" in ended.stdout


def test_ctrl_c_does_not_reach_a_process_that_was_begun_spared():
    with interrupts.children_spared():
        process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(30)"], stderr=subprocess.PIPE)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.SIGINT not in mask  # it reaches us
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    blocked = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "SigBlk" in line)
    assert process.poll() is None and int(blocked.split()[1], 16) & 1 << signal.SIGINT - 1
    process.terminate()
    assert process.communicate(timeout=10)[1] == b"" and process.returncode == -signal.SIGTERM
