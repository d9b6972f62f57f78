"""Artifacts to and from the files of other libraries; `tunescope.exchange.format` has a file for each form of them."""

from tunescope.exchange.convert import export, read
from tunescope.exchange.outgoing import Exported, Incoming, Outgoing

__all__ = ["Exported", "Incoming", "Outgoing", "export", "read"]
