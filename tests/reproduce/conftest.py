"""The pieces of a recipe in this process: another takes seconds to import torch (test_run.py has those)."""

from contextlib import nullcontext

import pytest

from tunescope.reproduce import run


class _Home:
    """A crew without processes."""

    def run(self, work, pieces, on_done):
        for piece in pieces:
            on_done(piece, work(piece))
        return []


@pytest.fixture(scope="module")
def in_process():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "crew", lambda *_: nullcontext(_Home()))
        yield
