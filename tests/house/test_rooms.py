"""The house keeps its rules: which room may import which, what lies where, and what a file is called.

Each rule is a function of a folder in `room_rules`, which is asked of the package, and of a made-up one that breaks it.
"""

import graphlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
import room_rules

from scripts import rooms
from scripts.imports import PACKAGE
from tunescope.system import plugins

TABLE = {  # from the ground up: a row names rows above it alone, so no import climbs
    "system": (),
    "methods": ("system",),
    "models": ("methods", "system"),
    "attachment": ("models", "methods", "system"),
    "data": ("system",),
    "report": ("data", "system"),
    "tasks": ("attachment", "data", "methods", "models", "system"),
    "trial": ("tasks", "attachment", "data", "methods", "models", "system"),
    "search": ("trial", "tasks", "report", "attachment", "data", "methods", "models", "system"),
    "probes": ("trial", "tasks", "report", "attachment", "data", "methods", "models", "system"),
    "exchange": ("tasks", "report", "attachment", "methods", "models", "system"),
    "comparison": ("search", "probes", "trial", "tasks", "report", "attachment", "data", "methods", "system"),
    "lab": ("comparison", "trial", "tasks", "report", "attachment", "data", "methods", "system"),
    "reproduce": (
        *("lab", "comparison", "search", "probes", "trial", "tasks", "report", "attachment", "data"),
        *("methods", "models", "system"),
    ),
    "theory": (),
    "cli": (
        *("reproduce", "lab", "comparison", "exchange", "search", "probes", "trial", "tasks", "report", "attachment"),
        *("data", "methods", "models", "system", "theory"),
    ),
}
PLUGINS = {  # folder -> what every file there has
    "system.executors": ("a class",),
    "methods.contexts": ("a class",),
    "methods.deltas": ("a class",),
    "models.families": ("FAMILY",),
    "attachment.own_attention": ("OWN",),
    "data.corpora": ("SOURCE", "splits", "rows"),
    "data.metrics": ("METRIC",),
    "tasks.kinds": ("a class",),
    "search.methods": ("a class",),
    "probes.looks": ("look",),
    "probes.demonstrations": ("ORDER", "measure"),
    "exchange.formats": ("ABOUT", "SERVES"),
    "comparison.loggers": ("a class",),
    "reproduce.recipes": ("TITLE", "SOURCE", "settings"),
}
# "pez+lora" is refused with a word on what pez is; the names of searches are listed for it, and nothing is imported.
NAMED = ["tunescope.methods.text_form names search.methods"]
DONE = (
    r"\w+(ing|ed|told|seen|given|found|known|shown|drawn|kept|made)|told|seen|given|found|known|shown|drawn|kept|made"
)
THINGS = (
    *(
        "checkpointing",
        "drawing",
        "finding",
        "halving",
        "infilling",
        "packing",
        "reasoning",
        "serving",
        "standing",
        "training",
    ),
    *("attached", "banked", "compiled", "masked", "merged", "outgoing", "projected", "published", "quantised"),
    *("registered", "seen", "tuned", "unseen", "listed", "stored"),  # the thing that a file holds, in that state
    "speed",  # which ends as a deed does
)
RULES: dict[str, Callable[[Path], list[str]]] = {
    "a room imports what its row of TABLE has": partial(room_rules.against_the_table, table=TABLE),
    "no string names what may not be imported": partial(room_rules.named_in_strings, table=TABLE),
    "no circle of files": room_rules.circles,
    "data and report never come to torch": room_rules.heavy,
    "the face is for users": room_rules.face_within,
    "an __init__ is a docstring or a face": room_rules.code_in_faces,
    "a folder of plugins holds plugins": partial(room_rules.not_plugins, folders=PLUGINS),
    "two levels of folders": room_rules.too_deep,
    "a file is named for a thing": partial(room_rules.not_things, endings=DONE, allowed=THINGS),
}
BROKEN: list[tuple[str, dict[str, str], str]] = [
    (
        "a room imports what its row of TABLE has",
        {"data/row.py": "def read():\n    from tunescope.trial.plan import Plan\n", "trial/plan.py": ""},
        "tunescope.data.row:2 imports tunescope.trial.plan.Plan: data may import system",
    ),
    (
        "a room imports what its row of TABLE has",
        {"data/row.py": "if TYPE_CHECKING:\n    import tunescope.report\n", "report/page.py": ""},
        "tunescope.data.row:2 imports tunescope.report: data may import system",
    ),
    (
        "a room imports what its row of TABLE has",
        {"theory/bounds.py": "from tunescope.system import files\n", "system/files.py": ""},
        "tunescope.theory.bounds:1 imports tunescope.system.files: theory may import no other room",
    ),
    ("a room imports what its row of TABLE has", {"attic/box.py": ""}, "the room attic is not in the table"),
    (
        "no string names what may not be imported",
        {"data/row.py": "PLAN = 'tunescope.trial.plan'\n", "trial/plan.py": ""},
        "tunescope.data.row names tunescope.trial.plan",
    ),
    (
        "no string names what may not be imported",
        {"data/row.py": "FOLDER = 'tasks.kinds'\n", "tasks/kinds/__init__.py": ""},
        "tunescope.data.row names tasks.kinds",
    ),
    (
        "no circle of files",
        {
            "data/row.py": "def of():\n    from tunescope.data.read import read\n",
            "data/read.py": "if TYPE_CHECKING:\n    from tunescope.data.row import Row\n",
        },
        "tunescope.data.read is imported by tunescope.data.row is imported by tunescope.data.read",
    ),
    ("data and report never come to torch", {"data/row.py": "import torch.nn\n"}, "tunescope.data.row -> torch"),
    (
        "data and report never come to torch",
        {
            "report/page.py": "from tunescope.system import files\n",
            "system/files.py": "def put():\n    from safetensors.torch import save_file\n",
        },
        "tunescope.report.page -> tunescope.system.files -> torch",
    ),
    (
        "data and report never come to torch",
        {
            "report/page.py": "from tunescope.system.files import put\n",
            "system/__init__.py": "from transformers import logging\n",
            "system/files.py": "",
        },
        "tunescope.report.page -> tunescope.system -> transformers",
    ),
    (
        "the face is for users",
        {"data/row.py": "from tunescope import LoRA\nfrom tunescope import __version__\n"},
        "tunescope.data.row:1 imports tunescope.LoRA: name the file that has it",
    ),
    (
        "the face is for users",
        {"data/row.py": "import tunescope as ts\n"},
        "tunescope.data.row:1 imports tunescope: name",
    ),
    (
        "an __init__ is a docstring or a face",
        {"data/__init__.py": '"""Rows."""\n\nfrom tunescope.data.row import Row\n\nHALF = 2\n\n__all__ = ["Row"]\n'},
        "tunescope.data/__init__.py:5 has code: HALF = 2",
    ),
    (
        "a folder of plugins holds plugins",
        {"data/metrics/shared.py": "def counts():\n    pass\n", "data/metrics/_shared.py": ""},
        "data.metrics/shared.py has no METRIC: move it up a folder",
    ),
    (
        "a folder of plugins holds plugins",
        {"data/metrics/Bleu.py": "METRIC = Metric()\n"},
        "data.metrics/Bleu.py is not found: small letters, digits and _ alone",
    ),
    ("two levels of folders", {"data/metrics/old/bleu.py": ""}, "data/metrics/old/bleu.py: two levels of folders"),
    ("a file is named for a thing", {"data/rows_told.py": ""}, "data/rows_told.py: 'told' is no thing"),
    (
        "a file is named for a thing",
        {"reporting/page.py": "", "reporting/__init__.py": ""},
        "reporting: 'reporting' is",
    ),
]


@pytest.mark.parametrize("rule", RULES)
def test_the_house_keeps_the_rule(rule: str) -> None:
    faults = [fault for fault in RULES[rule](PACKAGE) if fault not in NAMED]
    assert not faults, f"{rule} (docs/architecture.md):\n" + "\n".join(faults)


@pytest.mark.parametrize(("rule", "files", "fault"), BROKEN)
def test_a_house_that_breaks_the_rule_is_told(rule: str, files: Mapping[str, str], fault: str, tmp_path: Path) -> None:
    package = tmp_path / "tunescope"
    for name, text in {
        "__init__.py": "",
        "errors.py": "",
        "data/metrics/bleu.py": "METRIC = Metric()\n",
        **files,
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    (found,) = RULES[rule](package)
    assert found.startswith(fault)


def test_every_rule_is_shown_to_fail() -> None:
    assert {rule for rule, _, _ in BROKEN} == RULES.keys()


def test_a_row_of_the_table_names_rows_above_it() -> None:
    rooms = list(TABLE)
    assert all(rooms.index(below) < rooms.index(name) for name, row in TABLE.items() for below in row)


def test_the_picture_of_the_rooms_is_what_the_imports_say() -> None:
    up_to_date = rooms.PICTURE.read_text("utf-8") == rooms.picture()
    assert up_to_date, "docs/rooms.svg is not of this code. Type: make rooms"


def test_an_arrow_runs_down_and_stands_for_every_import_that_follows_from_it() -> None:
    edges = {
        "ground": set(),
        "low": {"ground"},
        "aside": {"ground"},
        "high": {"low", "aside", "ground"},
        "alone": set(),
    }
    assert rooms.reduced(edges) == edges | {"high": {"low", "aside"}}
    assert rooms.floors(edges) == {"ground": 0, "low": 1, "aside": 1, "high": 2, "alone": 0}
    with pytest.raises(graphlib.CycleError):
        rooms.floors(edges | {"ground": {"high"}})


@pytest.mark.parametrize("folder", PLUGINS)
def test_the_finder_finds_every_file_of_a_plugin_folder_that_has_no_underscore(folder: str) -> None:
    files = PACKAGE.joinpath(*folder.split(".")).glob("*.py")
    assert plugins.names(folder) == sorted(path.stem for path in files if not path.stem.startswith("_"))


def test_the_command_that_pip_installs_is_there() -> None:
    import importlib
    import tomllib

    (place,) = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]["scripts"].values()
    module, _, name = place.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
