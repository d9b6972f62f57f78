"""Whether a process is still the one that was meant: its number may have been given to another."""

from __future__ import annotations

from contextlib import suppress


def began(pid: int) -> float | None:
    """When it began, in seconds since 1970; None where there is none."""
    import psutil

    with suppress(psutil.Error):
        return float(psutil.Process(pid).create_time())
    return None


def runs(pid: int, began: float | None) -> bool:
    """Whether that very process is there. began: None where it is not known, so that the number alone tells."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = began is None or abs(process.create_time() - began) < 1.0
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
