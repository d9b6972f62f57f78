"""One thread a process: tiny models gain nothing from more, and the runs of others lose. `tools/` is on the path."""

import gc
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "tools"))
torch.set_num_threads(1)

from extension import plugin_folder  # noqa: E402, F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--families", metavar="A,B", help="of the tests over families, those of these alone")
    parser.addoption(
        "--slow", action="store_true", help="those too that begin processes of other programs again and again"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if wanted := config.getoption("--families"):
        others = [item for item in items if family_of(item) not in (None, *wanted.split(","))]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    if not config.getoption("--slow"):
        late = pytest.mark.skip(reason="make slow")
        for item in (item for item in items if item.get_closest_marker("slow")):
            item.add_marker(late)


def pytest_collection_finish() -> None:
    """What is imported by now lasts: to look through its million objects for garbage takes a third of a second."""
    gc.freeze()
    gc.set_threshold(50_000)


def family_of(item: pytest.Item) -> str | None:
    """The family that a test is parametrised with; None for one that is not."""
    call = getattr(item, "callspec", None)
    return call.params.get("family") if call else None
