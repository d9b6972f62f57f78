"""NAME:PATH and NAME:PATH#PART: which corpus, where it lies, which part of it."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tunescope.errors import UserError
from tunescope.system import plugins

FOLDER = "data.corpora"
WRITTEN = re.compile(r"(?P<name>\w{2,}):(?!//)(?P<path>.+)", re.DOTALL)  # no drive (C:\x), no URL (s3://x)


@dataclass(frozen=True)
class Spec:
    """What was typed. part "" is the whole folder, or the file."""

    name: str
    path: Path
    part: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.path}" + (f"#{self.part}" if self.part else "")


def parsed(text: str | Path) -> Spec | None:
    """The spec that a text is, or None where it is a path: one that exists, a drive's, a URL, one without a name.

    Raises:
        UserError: there is no such corpus.
    """
    written = WRITTEN.fullmatch(str(text))
    if written is None or os.path.exists(text):
        return None
    if written["name"] not in names():
        near = difflib.get_close_matches(written["name"], names(), n=1)
        raise UserError(
            f"{text}: there is no file of that name and no corpus {written['name']!r}."
            + (f" Did you mean {near[0]!r}?" if near else "")
            + f" Corpora: {', '.join(names())}."
        )
    path, mark, part = written["path"].rpartition("#")
    if not mark or os.path.exists(written["path"]):
        path, part = written["path"], ""
    return Spec(written["name"], Path(path).expanduser(), part)


def names() -> list[str]:
    """The corpora: the files of their folder."""
    return plugins.names(FOLDER)


def shown(text: str | Path) -> str:
    """A path's or spec's name without its folders: results are shared, paths are private."""
    written = WRITTEN.fullmatch(str(text))
    if written is None or written["name"] not in names():
        return Path(text).name
    return f"{written['name']}:{Path(written['path']).name}"


def scored_by(text: str | Path) -> dict[str, str | bool]:
    """{"metric", "lowercase"}: what decides on texts of that corpus; {} of other paths, and of a corpus with labels."""
    spec = parsed(text)
    module = plugins.load(FOLDER, spec.name) if spec else None
    metrics = getattr(module, "METRICS", ())
    return {"metric": metrics[0], "lowercase": getattr(module, "LOWERCASE", False)} if metrics else {}
