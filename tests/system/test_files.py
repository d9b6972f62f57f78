"""Files that are whole or absent, and one process in a folder."""

import errno
import json
import os
import re
import socket
import stat
import subprocess
import sys

import pytest
import torch

from tunescope.errors import UserError
from tunescope.system import files, run_folder, tensor_files
from tunescope.system.lock import locked


@pytest.mark.parametrize("step", ["write", "sync", "rename"])
def test_a_failed_put_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch, step):
    path = tmp_path / "a.json"
    files.put_json(path, {"old": 1})

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, step, fail)
    with pytest.raises(OSError, match="No space"):
        files.put_json(path, {"new": 2})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_tensor_files_have_the_mode_that_the_umask_says(tmp_path):
    old = os.umask(0o027)
    try:
        tensor_files.put(tmp_path / "t.safetensors", {"a": torch.zeros(3)})
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "t.safetensors").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (
            RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
            "the disk is full",
        ),
        (OSError(errno.EROFS, "Read-only file system"), "writing is not allowed (Read-only file system)"),
        *(
            (OSError(number, os.strerror(number), "a.json"), f"the disk fails ({os.strerror(number)}: a.json)")
            for number in (errno.EIO, errno.EFBIG, errno.ENAMETOOLONG, errno.ENOENT, errno.ESTALE)
        ),
        *(
            (OSError(number, os.strerror(number), "a.json"), f"a name is taken ({os.strerror(number)}: a.json)")
            for number in (errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)
        ),
        (RuntimeError("I/O error: Input/output error (os error 5)"), "the disk fails (Input/output error)"),
    ],
)
def test_a_disk_that_takes_nothing_is_one_line_with_the_way_on(tmp_path, problem, reason):
    (tmp_path / "config.json").touch()
    told = f"{reason} while writing to {tmp_path}; what was finished is kept. Mend that, then type: tunescope resume "
    with pytest.raises(UserError, match=f"^{re.escape(f'{told}{tmp_path}')}$"), files.disk_errors_named(tmp_path):
        raise problem


def test_a_run_that_the_disk_did_not_let_begin_is_not_said_to_be_resumed(tmp_path):
    told = f"the disk is full while writing to {tmp_path}; what was finished is kept. Mend that, then type the same "
    with pytest.raises(UserError, match=f"^{re.escape(told)}command again$"), files.disk_errors_named(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UserError, match="is not the folder of a run"):
        run_folder.read_config(tmp_path)


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.EBADF, "Bad file descriptor"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        socket.gaierror(-2, "Name or service not known"),
        OSError("no model of that name"),  # as transformers raises it
    ],
)
def test_other_errors_pass_the_disk_by(problem):
    with pytest.raises(OSError, match=re.escape(str(problem))), files.disk_errors_named("runs/a"):
        raise problem


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist: .* is not the folder of a run"),
        ("{", "cannot be read .*; remove it to have it made again"),
        ("[]", "does not hold an object; remove it to have it made again"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        files.read_json(path)


def test_what_a_run_asks_for_is_made_again_by_the_command_that_began_it_alone(tmp_path):
    (tmp_path / "status.json").write_text("{}")
    with pytest.raises(UserError, match=r"asks for is lost\. Type the command that began the run once more"):
        files.read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(
        UserError, match=r"cannot be read .*: remove it\. Type the command that began the run once more"
    ):
        files.read_json(tmp_path / "config.json")


def test_a_run_that_is_not_finished_and_a_file_in_place_of_a_run_are_told(tmp_path):
    (tmp_path / "status.json").write_text("{}")
    with pytest.raises(UserError, match=r"the run in .* is not finished\. Type: tunescope resume "):
        files.read_json(tmp_path / "results.json")
    with pytest.raises(UserError, match=r"status\.json is a file, and not the folder of a run\.$"):
        files.read_json(tmp_path / "status.json" / "config.json")


HOLD = """
import sys, time
from pathlib import Path
from tunescope.system.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_by_the_name_of_the_first(tmp_path, holder):
    message = (
        rf"{tmp_path} is in use by process {holder.pid} on this host, "
        rf"started 20\S+Z; wait, or .* type: rm {tmp_path}/LOCK"
    )
    with pytest.raises(UserError, match=message), locked(tmp_path):
        raise AssertionError
    assert (tmp_path / "LOCK").exists()


def test_the_lock_of_a_dead_process_is_taken_over_with_a_line(tmp_path, holder):
    holder.kill()
    holder.wait()
    said = []
    with locked(tmp_path, said.append):
        assert json.loads((tmp_path / "LOCK").read_text())["pid"] == os.getpid()
    assert said == [f"{tmp_path} was left by process {holder.pid}, which is gone; taking over."]
    assert list(tmp_path.iterdir()) == []


def test_a_number_given_to_another_process_does_not_hold_the_lock(tmp_path):
    old = {"pid": os.getpid(), "host": socket.gethostname(), "started": "2020-01-01T00:00:00Z"}
    (tmp_path / "LOCK").write_text(json.dumps(old))
    (tmp_path / "LOCK.marker").write_text(f"{os.getpid()}\n{socket.gethostname()}\n1\n")  # 1: when it was started
    with locked(tmp_path, lambda line: None):
        own = json.loads((tmp_path / "LOCK").read_text())
        assert own["pid"] == old["pid"] and own["started"] > old["started"]
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_another_host_is_left_to_a_person(tmp_path):
    old = {"pid": 7, "host": "elsewhere", "started": "2020-01-01T00:00:00Z"}
    (tmp_path / "LOCK").write_text(json.dumps(old))
    for marker in ("7\nelsewhere\n1\n", None):  # a person who took one of the two away has not said that it is free
        if marker is None:
            (tmp_path / "LOCK.marker").unlink()
        else:
            (tmp_path / "LOCK.marker").write_text(marker)
        with pytest.raises(UserError, match="in use by process 7 on host elsewhere"), locked(tmp_path):
            raise AssertionError
        assert json.loads((tmp_path / "LOCK").read_text()) == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["LOCK"]
    (tmp_path / "LOCK").unlink()
    (tmp_path / "LOCK.marker").write_text("7\nelsewhere\n1\n")
    with pytest.raises(UserError, match=rf"is in use; .* type: rm {tmp_path}/LOCK\*"), locked(tmp_path):
        raise AssertionError


def test_what_the_refusal_says_to_type_sets_the_folder_free(tmp_path):
    (tmp_path / "LOCK").write_text(json.dumps({"pid": 7, "host": "elsewhere", "started": "then"}))
    (tmp_path / "LOCK.marker").write_text("7\nelsewhere\n1\n")
    with pytest.raises(UserError) as refused, locked(tmp_path):
        raise AssertionError
    subprocess.run(str(refused.value).rpartition("type: ")[2], shell=True, check=True)
    with locked(tmp_path):
        assert json.loads((tmp_path / "LOCK").read_text())["pid"] == os.getpid()


def test_the_process_that_holds_it_is_refused_a_second_time(tmp_path):
    with locked(tmp_path):
        with pytest.raises(UserError, match=f"by process {os.getpid()} on this host"), locked(tmp_path):
            raise AssertionError
        assert (tmp_path / "LOCK").exists()


FORKS = """
import os, sys
from pathlib import Path
from tunescope.system.lock import locked
with locked(Path(sys.argv[1])):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    print(*sorted(os.listdir(sys.argv[1])))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_that_ends_does_not_end_the_hold_of_its_parent(tmp_path):
    done = subprocess.run([sys.executable, "-c", FORKS, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "LOCK LOCK.marker\n"


RACE = """
import sys, time
from pathlib import Path
from tunescope.system.lock import locked
from tunescope.errors import UserError
print("ready", flush=True)
sys.stdin.readline()
try:
    with locked(Path(sys.argv[1]), say=lambda line: None):
        print("held", flush=True)
        sys.stdin.readline()
except UserError:
    print("refused", flush=True)
"""


def test_of_processes_that_find_a_dead_one_s_lock_together_one_takes_it(tmp_path, holder):
    holder.kill()
    holder.wait()
    command = [sys.executable, "-c", RACE, tmp_path]
    some = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [one.stdout.readline() for one in some] == ["ready\n"] * 4
    for one in some:
        one.stdin.write("go\n")
        one.stdin.flush()
    assert sorted(one.stdout.readline() for one in some) == ["held\n", *["refused\n"] * 3]
    for one in some:
        one.communicate("end\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("problem", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_the_lock_needs_no_lock_of_the_kernel(tmp_path, monkeypatch, problem):
    """Network file systems may have none."""

    def fail(*_):
        raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr("fcntl.flock", fail)
    monkeypatch.setattr("fcntl.lockf", fail)
    with locked(tmp_path), pytest.raises(UserError, match="in use by process"), locked(tmp_path):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []


def test_a_torn_lock_is_not_guessed_at(tmp_path):
    (tmp_path / "LOCK").write_text("{")
    with (
        pytest.raises(UserError, match=r"is in use; wait, or if no tunescope is running there type"),
        locked(tmp_path),
    ):
        raise AssertionError


def test_what_a_kill_left_empty_is_taken_over_once_it_has_been_so_for_long(tmp_path):
    marker, said = tmp_path / "LOCK.marker", []
    (tmp_path / "LOCK").touch()
    marker.touch()  # whoever makes it writes its name there at once: it may be about to
    with pytest.raises(UserError, match="is in use; wait, or if no tunescope"), locked(tmp_path):
        raise AssertionError
    os.utime(marker, (0, 0))
    with locked(tmp_path, said.append):
        assert json.loads((tmp_path / "LOCK").read_text())["pid"] == os.getpid() and marker.read_text()
    assert said == [f"{tmp_path} was left by a process that had not yet said which it is; taking over."]
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_gone_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
