"""results.json in; verdict, table, page and card out. Never torch."""

from tunescope.report.page import html, write
from tunescope.report.table import table

__all__ = ["html", "table", "write"]
