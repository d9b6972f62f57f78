"""What bash makes of a line."""

import os
import subprocess


def words(line: str) -> list[str]:
    """The words of a line, nothing of which is run; a pattern that finds no file stays as it is."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]
