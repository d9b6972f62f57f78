"""The probes, read from their folder."""

from tunescope import probes
from tunescope.errors import UserError
from tunescope.probes import demonstrations
from tunescope.system import plugins


def lines() -> list[str]:
    """NAME: what it tells, for every probe."""
    return plugins.lines(probes)


def check(name: str) -> str:
    """The name, if it is a probe's.

    Raises UserError, with the nearest name, where it is not.
    """
    if name in plugins.names(demonstrations):
        raise UserError(f"{name!r} looks at demonstrations: tunescope anchors MODEL DATA --only {name}")
    return plugins.check(probes, name, "probe")
