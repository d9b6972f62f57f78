"""A fault of ours as a file that can be sent: what was typed, versions, and where it happened."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from tunescope.system.package_version import package_version
from tunescope.system.say import say

PACKAGES = ("tunescope", "torch", "transformers", "safetensors", "numpy", "scipy", "pydantic", "cyclopts")
LONGEST = 300  # letters of a message that are shown


def keep(problem: Exception, words: Sequence[str]) -> Path | None:
    """The new file, in the folder for temporary ones; None where no file can be written: it is then on stderr."""
    told = "\n".join(
        [
            f"command: {shlex.join(['tunescope', *words])}",
            f"python {platform.python_version()} on {platform.system()} {platform.machine()}",
            *(f"{name} {package_version(name)}" for name in PACKAGES),
            "",
            "".join(traceback.format_exception(problem)),
        ]
    )
    try:
        handle, name = tempfile.mkstemp(prefix="tunescope-fault-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(told)
    except OSError:
        say(told, sys.stderr)
        return None
    return Path(name)
