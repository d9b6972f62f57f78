"""The wheel holds everything that the package reads, and runs in an environment of its own, away from the sources."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import tinyrun

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(out), str(ROOT))
    subprocess.run(build, check=True, capture_output=True)
    (found,) = out.glob("tunescope-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the wheel, and what it needs from the one that runs this; no file of the sources."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    found = home / "bin" / "python"
    install = ("--python", str(found), "install", "--no-deps", "--no-index", "-q", str(wheel))
    subprocess.run((sys.executable, "-m", "pip", *install), check=True, capture_output=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run((found, "-c", ask), check=True, capture_output=True, text=True).stdout.strip())
    (site / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")  # a .pth in there is not followed
    return found


def ran(python: Path, folder: Path, *words: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run((python, *words), cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    kept = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(("git", "ls-files", "src"), cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert kept == {name.removeprefix("src/") for name in listed.splitlines()}


def test_it_runs_in_an_environment_of_its_own_from_data_to_verdict(python: Path, tmp_path: Path) -> None:
    where = ran(python, tmp_path, "-c", "import tunescope; print(tunescope.__file__)")
    assert str(SOURCE) not in where and "environment" in where
    model, data = tinyrun.write(tmp_path)
    size = (
        "--test",
        data["test"],
        "--steps",
        "4",
        "--batch-size",
        "4",
        "--eval-every",
        "2",
        "--trials",
        "1",
        "--seeds",
        "1",
        "--out",
        "run",
    )
    said = ran(python, tmp_path, "-m", "tunescope", "compare", model, data["train"], "--arms", "prefix", "lora", *size)
    assert "Verdict: no verdict." in said
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
