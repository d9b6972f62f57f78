"""transformers' own progress bars and warnings, left out while a model is read or written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(*, warnings: bool = False) -> Iterator[None]:
    """Without bars, and without warnings unless they are wanted: what matters of them is told in our own words."""
    from transformers.utils import logging

    bars, told = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    if not warnings:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(told)
        if bars:
            logging.enable_progress_bar()
