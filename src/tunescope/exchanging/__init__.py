"""Artifacts to and from the files of other libraries; `tunescope.formats` has a file for each form of them."""

from tunescope.exchanging.driver import export, read
from tunescope.exchanging.outgoing import Exported, Incoming, Outgoing

__all__ = ["Exported", "Incoming", "Outgoing", "export", "read"]
