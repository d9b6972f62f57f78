"""The packages that pyproject.toml asks for are those that the source imports."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(lines):
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in lines}


@pytest.fixture(scope="module")
def imported():
    """The distributions that src imports anywhere, as pip names them."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.partition(".")[0])
    owners = packages_distributions()
    third = found - set(sys.stdlib_module_names) - {"tunescope"}
    return {one.lower().replace("_", "-") for name in third for one in owners.get(name, [name])}


def test_every_dependency_is_imported(imported):
    assert names(PROJECT["dependencies"]) - imported == set()
