"""A tiny model with rows, and the command line on it."""

import pytest
import tinyrun
from commands import call


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return tinyrun.write(tmp_path_factory.mktemp("material"))


@pytest.fixture
def tunescope(monkeypatch, capsys):
    return lambda *words: call(monkeypatch, capsys, *words)
