"""BibTeX of the methods that a run used, each from its own file's CITATION."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tunescope.methods.text_form import FOLDERS
from tunescope.system import plugins

NAME = "CITATION"
SEARCHES = "search.methods"


def bibtex(results: Mapping[str, Any]) -> str:
    """Every entry once, in the order of the arms; a comment names the methods that have none. Nothing is imported."""
    files = {path.stem: path for folder in (*FOLDERS, SEARCHES) for path in plugins.files(folder)}
    used = dict.fromkeys(name for arm in results["arms"] for name in _methods(arm) if name in files)
    told = {name: citation(files[name]) for name in used}
    entries = dict.fromkeys(entry for one in told.values() for entry in _entries(one))
    none = [name for name, one in told.items() if not one]
    without = [f"% without a paper of their own: {', '.join(none)}"] if none else []
    return "\n\n".join([*entries, *without]) + "\n"


def citation(path: Path) -> str:
    """What the file says of where its method is from; "" where it says nothing."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == NAME for one in node.targets):
            return str(ast.literal_eval(node.value))
    return ""


def _entries(citations: str) -> Iterator[str]:
    yield from (one.strip() for one in re.split(r"(?m)^(?=@)", citations) if one.strip())


def _methods(arm: Mapping[str, Any]) -> list[str]:
    """As results of today name them; of earlier ones as the arm was typed."""
    if "methods" in arm:
        return [str(one) for one in arm["methods"]]
    return [part.partition(":")[0].strip() for part in re.split(r"(?<!\\)\+", str(arm.get("spec") or ""))]
