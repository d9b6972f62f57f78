"""A run in a notebook: its answer and its table as HTML without script or style sheet, which a notebook may keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunescope.report.page import template
from tunescope.report.view import view


def html(results: Mapping[str, Any], page: str = "") -> str:
    """page: where the run's page lies, to be told."""
    shown: str = template("notebook.html.j2").render(v=view(dict(results)), page=page)
    return shown
