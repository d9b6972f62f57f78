"""The probes by name: files in `looks/`, and those in `demonstrations/` that a study of demonstrations has."""

from tunescope.errors import UserError
from tunescope.system import plugins

LOOKS, DEMONSTRATIONS = "probes.looks", "probes.demonstrations"


def lines() -> list[str]:
    """NAME: what it tells, for every probe."""
    return plugins.lines(LOOKS)


def known_probe(name: str) -> str:
    """The name, if it is a probe's.

    Raises UserError, with the nearest name, where it is not.
    """
    if name in plugins.names(DEMONSTRATIONS):
        raise UserError(f"{name!r} looks at demonstrations: tunescope anchors MODEL DATA --only {name}")
    return plugins.checked_name(LOOKS, name, "probe")
