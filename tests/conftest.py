"""One thread a process: tiny models gain nothing from more, and the runs of others lose. `tools/` is on the path."""

import gc
import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "tools"))
torch.set_num_threads(1)
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # before anything asks for one: tests are of the CPU
os.fsync = lambda handle: None  # no test loses power, and a comparison waits a hundred times for the disk

from extension import plugin_folder  # noqa: E402, F401

from tunescope.models.family import family_names  # noqa: E402

# A test over most of the families that have a file tries these, of each build one, and by `make slow` the others, which
# have every method tried in tests/models.
FIRST = {"gpt2", "llama", "gemma2", "phi", "bert", "t5", "bart"}
MOST = 4  # of them


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--families", metavar="A,B", help="of the tests over families, those of these alone")
    parser.addoption(
        "--slow", action="store_true", help="those too that begin processes of other programs again and again"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    others = {*family_names()} - FIRST
    of_test: dict[str, set[str | None]] = {}
    for item in items:
        of_test.setdefault(item.nodeid.partition("[")[0], set()).add(family_of(item))
    for item in items:
        is_of_most = len(of_test[item.nodeid.partition("[")[0]] & FIRST) >= MOST and item.path.parent.name != "models"
        if is_of_most and family_of(item) in others:
            item.add_marker(pytest.mark.slow)
    if wanted := config.getoption("--families"):
        others = [item for item in items if family_of(item) not in (None, *wanted.split(","))]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    if not config.getoption("--slow"):
        late = pytest.mark.skip(reason="make slow")
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(late)


def pytest_collection_finish() -> None:
    """What is imported by now lasts: to look through its million objects for garbage takes a third of a second."""
    gc.freeze()
    gc.set_threshold(50_000)


def family_of(item: pytest.Item) -> str | None:
    """The family that a test is parametrised with; None for one that is not."""
    call = getattr(item, "callspec", None)
    return call.params.get("family") if call else None
