"""What the pages and docstrings call by name is there: modules of the package, files of the project, rooms."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tunescope"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
NO_MODULES = ("tunescope.json", "tunescope.modules")  # a file, and an attribute of a model
GIVEN = ("NAME.py", "MODEL_TYPE.py", "ia3.py")  # that a reader is to write


def is_there(dotted: str) -> bool:
    """A module, or a name in one."""
    head, _, last = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError:
        return bool(head) and is_module(head) and hasattr(importlib.import_module(head), last)
    return True


def is_module(dotted: str) -> bool:
    place = ROOT / "src" / Path(*dotted.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


def named(text: str) -> set[str]:
    found = set(re.findall(r"\btunescope\.[a-z_]+(?:\.[A-Za-z_]+)*", text))
    return {one for one in found if not one.startswith(NO_MODULES)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    missing = [one for one in sorted(named(page.read_text("utf-8"))) if not is_there(one)]
    assert not missing, f"{page.name} names what has moved or gone"


def test_every_module_that_a_docstring_or_message_names_is_there() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        strings = [n.value for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Constant)]
        for one in sorted(named("\n".join(text for text in strings if isinstance(text, str)))):
            if not is_there(one):
                found[one] = path.relative_to(PACKAGE)
    assert not found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_file_of_the_project_that_a_page_names_is_there(page: Path) -> None:
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|json|html|j2|svg))`", page.read_text("utf-8"))
    own = [path for path in paths if not path.endswith(GIVEN) and path.split("/")[0] not in ("RUN", "FOLDER", "arms")]
    places = [ROOT, PACKAGE, PACKAGE.parent, PACKAGE / "report"]
    assert not [path for path in own if not any((place / path).exists() for place in places)]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_without_its_folder_is_there(page: str) -> None:
    alone = re.findall(r"`(\w+\.py)`", (ROOT / page).read_text("utf-8"))
    assert not [name for name in alone if not any(PACKAGE.rglob(name)) and not any((ROOT / "tests").rglob(name))]
