"""A warm process is as one that Python has begun: both run the same program, and say the same of themselves."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm

PROGRAM = """
import atexit, json, multiprocessing, os, sys
def told():
    kept = [key for key in sys.modules["__main__"].__dict__ if not key.startswith("__")]
    return json.dumps({
        "argv": sys.argv, "name": __name__, "path": sys.path[:2], "folder": os.getcwd(), "around": dict(os.environ),
        "files": sorted(os.listdir("/proc/self/fd"))[:4],
        "main": kept, "input": sys.stdin.read(), "paths": sorted(path for path in sys.path if "tools" in path),
    })
def second(connection):
    connection.send(os.getppid())
if __name__ == "__main__":
    atexit.register(print, "over", flush=True)
    print(told())
    print("a word", file=sys.stderr)
    mine, its = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=second, args=(its,))
    other.start()
    print(mine.recv() == os.getpid())
    other.join()
    print(other.exitcode)
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize(("spares", "code"), [(1, 0), (0, 3)])
def test_it_says_of_itself_what_a_begun_one_says(tmp_path: Path, ours: bool, spares: int, code: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    words = [str(script), str(code), "two words"]
    around = {"PYTHONPATH": str(tmp_path), "OF_THIS": "é\n"}
    begun = subprocess.run(
        [sys.executable, *words], env={**os.environ, **around}, cwd=tmp_path, stdin=subprocess.DEVNULL, **PIPED
    )
    done = warm.run(words, env=around, cwd=tmp_path, ours=ours, spares=spares)
    assert (done.returncode, done.stdout, done.stderr) == (begun.returncode, begun.stdout, begun.stderr)
    assert begun.returncode == code and begun.stdout.splitlines()[1:] == ["True", "0", "over"]


PIPED = {"capture_output": True, "text": True, "check": False}


@pytest.mark.parametrize(
    "words", [["-c", "import sys; print(sys.argv, sys.path[0], __name__)", "a", "-b"], ["-m", "program", "a", "-b"]]
)
def test_code_and_modules_are_run_as_python_runs_them(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint(sys.argv, sys.path[0], __name__)\nraise SystemExit('no')\n")
    begun = subprocess.run([sys.executable, *words], cwd=tmp_path, **PIPED)
    done = warm.run(words, cwd=tmp_path, ours=False)
    assert (done.returncode, done.stdout, done.stderr) == (begun.returncode, begun.stdout, begun.stderr)


def test_an_error_is_told_on_stderr_and_a_failure_is_raised_where_it_is_checked() -> None:
    done = warm.run(["-c", "1 / 0"])
    assert done.returncode == 1 and done.stderr.endswith("ZeroDivisionError: division by zero\n")
    with pytest.raises(subprocess.CalledProcessError):
        warm.run(["-c", "1 / 0"], check=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_it_can_be_killed_and_none_of_its_own_is_left(number: signal.Signals) -> None:
    heard = "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # behind nohup it is ignored
    process = warm.start(["-c", f"{heard}; print('here', flush=True); time.sleep(60)"], spares=2)
    assert process.stdout is not None and process.stdout.readline() == "here\n" and process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=20) == -number
    begun = time.monotonic()
    assert process.communicate(timeout=20) == ("", "")  # spare ones hold the pipes until they end
    assert time.monotonic() - begun < 5


def test_nothing_of_one_is_in_the_next() -> None:
    warm.run(["-c", "import tunescope, os; tunescope.seen = 1; os.environ['SEEN'] = '1'; os.chdir('/')"], check=True)
    code = "import tunescope, os; print(hasattr(tunescope, 'seen'), 'SEEN' in os.environ, os.getcwd())"
    assert warm.run(["-c", code]).stdout == f"False False {os.getcwd()}\n"
