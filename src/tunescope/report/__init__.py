"""results.json in, one self-contained page or a terminal table out. Nothing here imports torch."""

from tunescope.report.page import html, write
from tunescope.report.table import table

__all__ = ["html", "table", "write"]
