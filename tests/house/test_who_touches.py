"""Only `attachment/` touches a model: no other room registers hooks, or writes what a module or its attention holds."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tunescope"
ROOM = "attachment"
# Oracles that recipes hold `attachment` against: they share nothing with it, its hooks and its state least of all.
ORACLES = {"reproduce/recipes/_literal_attention.py", "reproduce/recipes/_literal_forms.py"}
# It reads them, to see whether a model is still what it was: `named_children()` would take several times as long.
READS = {"models/anatomy.py": {"_modules", "_parameters"}}

REGISTERS = re.compile(r"register_(\w*_)?(hook|module|parameter|buffer)|add_module|set_submodule")
HELD = {"__dict__", "_parameters", "_modules", "_buffers", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks"}
STATE = {"STATE", "LayerState", "ATTACHED", "WANTS_OUTPUT_START", "STARTS"}
NO_MODEL = {"config", "tokenizer"}  # what `setattr` may be called on


def touches(source: str) -> Iterator[str]:
    """Each line of a file that touches a model, with what it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            own = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"  # a module of one's own making
            if REGISTERS.fullmatch(node.func.attr) and not own:
                yield f"{node.lineno}: {node.func.attr}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            on = ast.unparse(node.args[0])
            yield from () if on in NO_MODEL else (f"{node.lineno}: {ast.unparse(node.func)}",)
        if isinstance(node, ast.Attribute) and node.attr in HELD:
            yield f"{node.lineno}: {node.attr}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"tunescope.{ROOM}"):
            yield from (f"{node.lineno}: {one.name}" for one in node.names if one.name in STATE)


def named_classes(source: str) -> Iterator[str]:
    """Each line that compares a class's name with one of ours, which dodges an import."""
    ours = _classes()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and getattr(node.left, "attr", None) == "__name__":
            texts = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            yield from (f"{node.lineno}: {text}" for text in texts & ours)


@cache
def _classes() -> set[str]:
    return {name for source in _files().values() for name in re.findall(r"^class (\w+)", source, re.MULTILINE)}


@cache
def _files() -> dict[str, str]:
    return {file.relative_to(SOURCE).as_posix(): file.read_text("utf-8") for file in SOURCE.rglob("*.py")}


def test_no_other_room_touches_a_model() -> None:
    rooms = {name: source for name, source in _files().items() if name.partition("/")[0] != ROOM}
    found = {
        name: [line for line in touches(source) if line.partition(": ")[2] not in READS.get(name, ())]
        for name, source in rooms.items()
        if name not in ORACLES
    }
    assert len(found) > 300 and {name: lines for name, lines in found.items() if lines} == {}


def test_the_room_itself_and_the_oracles_do() -> None:
    files = _files()
    assert any(any(touches(source)) for name, source in files.items() if name.startswith(f"{ROOM}/"))
    assert all(any(touches(files[name])) for name in ORACLES)  # else one of them is to be struck from the list


def test_no_name_of_a_class_of_ours_stands_for_an_import() -> None:
    found = {name: list(named_classes(source)) for name, source in _files().items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "module.register_forward_hook(f)",
        "layer.register_forward_pre_hook(f, with_kwargs=True)",
        "model.register_full_backward_hook(f)",
        "weights.register_hook(f)",
        "model.register_module('x', y)",
        "self.model.register_buffer('x', y)",
        "model.add_module('x', y)",
        "module.__dict__['x'] = 1",
        "model.h[0]._parameters['weight'] = w",
        "del model._modules['x']",
        "setattr(module, 'x', 1)",
        "setattr(self.model, 'x', 1)",
        "from tunescope.attachment.attention.function import STATE",
        "from tunescope.attachment.guards.marks import ATTACHED",
    ],
)
def test_the_guard_sees(line: str) -> None:
    assert len(list(touches(line))) == 1


def test_the_guard_lets_be_what_is_no_model() -> None:
    assert not list(touches("self.register_buffer('x', y)\nsetattr(config, 'x', 1)\nregistered = hooks"))
    assert list(named_classes("type(spec).__name__ == 'Head'")) == ["1: Head"]
    assert list(named_classes("type(spec).__name__ in ('LoRA', 'x')")) == ["1: LoRA"]
    assert not list(named_classes("type(module).__name__ == 'Conv1D'"))  # a class of transformers, whose import is slow
