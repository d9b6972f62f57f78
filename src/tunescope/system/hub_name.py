"""A model's name on the Hugging Face hub, at a revision of it: ORG/NAME@REVISION, a branch, a tag or a commit."""

import re
from pathlib import Path
from typing import NamedTuple

NAMED = re.compile(r"(\w[\w.-]*(?:/[\w.-]+)?)@([\w./-]+)")


class HubName(NamedTuple):
    """revision: "" is the newest."""

    name: str
    revision: str = ""


def parted(name: str) -> HubName:
    """The repository and its revision; what exists on the disk is a folder by that name, whatever is in it."""
    found = NAMED.fullmatch(name)
    return HubName(name) if found is None or Path(name).exists() else HubName(*found.groups())
