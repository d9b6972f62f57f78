"""The README's figures are those of the result files, and its commands exist."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_table_of_the_readme_is_what_the_result_files_say():
    done = subprocess.run([sys.executable, "-m", "scripts.readme", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run: python -m scripts.readme"
