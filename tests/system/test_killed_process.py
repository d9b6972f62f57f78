"""One of several processes that is killed: the command ends, and says which and by what."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, time
if os.environ["RANK"] == sys.argv[1]:
    print(*sys.argv[3:], file=sys.stderr, flush=True)
    os.kill(os.getpid(), int(sys.argv[2]))
time.sleep(60)
"""


def ended(*words):
    begin = "import sys; from tunescope.system import ranks; sys.exit(ranks.begun(2, ['-c', *sys.argv[1:]]))"
    alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [sys.executable, "-c", begin, SCRIPT, *words], env=alone, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_that_is_killed_is_named_with_how_to_go_on(rank):
    run = ended(rank, "9")
    told = f"process {int(rank) + 1} of 2 was ended by SIGKILL, most likely for want of memory. To go on, type the same"
    assert run.returncode == 137 and run.stderr.strip() == f"{told} command again."


def test_another_signal_is_named_and_words_of_its_own_are_enough():
    assert (
        ended("1", "6").stderr.strip() == "process 2 of 2 was ended by SIGABRT. To go on, type the same command again."
    )
    run = ended("1", "6", "its", "own", "words")
    assert run.returncode == 134 and run.stderr.strip() == "its own words"
