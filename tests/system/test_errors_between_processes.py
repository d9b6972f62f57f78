"""What a process refuses is told by the one that waits for it, with all that it says."""

import pickle

import pytest

from tunescope.comparison.entry import AllRefused
from tunescope.comparison.time_cuts import TooShort
from tunescope.data.row import MissingField
from tunescope.errors import UserError
from tunescope.system.files import DiskError
from tunescope.trial.budget import TooSmallBudget

GIVEN = [
    UserError("a line"),
    AllRefused("bias", "no such parameter"),
    TooShort("it takes longer", 7),
    MissingField("no field", "text", "txt"),
    TooSmallBudget("too small", "delta", 36_864),
    DiskError("the disk ", "is full"),
]


@pytest.mark.parametrize("given", GIVEN, ids=lambda one: type(one).__name__)
def test_a_refusal_comes_out_of_another_process_as_it_went_in(given: UserError) -> None:
    found = pickle.loads(pickle.dumps(given))
    assert (type(found), str(found), found.args, vars(found)) == (type(given), str(given), given.args, vars(given))
    assert found.__reduce__() == given.__reduce__()
