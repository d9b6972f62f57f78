"""The probes, read from their folder."""

from tunescope import folder, probes
from tunescope.anchors import sections
from tunescope.errors import UserError


def lines() -> list[str]:
    """NAME: what it tells, for every probe."""
    return folder.lines(probes)


def check(name: str) -> str:
    """The name, if it is a probe's.

    Raises UserError, with the nearest name, where it is not.
    """
    if name in folder.names(sections):
        raise UserError(f"{name!r} looks at demonstrations: tunescope anchors MODEL DATA --only {name}")
    return folder.check(probes, name, "probe")
