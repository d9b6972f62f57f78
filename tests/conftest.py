"""One thread a process: tiny models gain nothing from more, and the runs of others lose. And tests of some families."""

import pytest
import torch

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--families", metavar="A,B", help="of the tests over families, those of these alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = (config.getoption("--families") or "").split(",")
    if wanted == [""]:
        return
    others = [item for item in items if family_of(item) not in (None, *wanted)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in set(others)]


def family_of(item: pytest.Item) -> str | None:
    """The family that a test is parametrised with; None for one that is not."""
    call = getattr(item, "callspec", None)
    return call.params.get("family") if call else None
