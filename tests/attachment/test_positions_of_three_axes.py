"""Positions beside a picture go back within one text, and those of packed rows where another begins."""

import pytest
import tiny
import torch

import tunescope as ts
from tunescope.attachment.guards.output_start import check_output_start
from tunescope.errors import UserError

ONE = torch.tensor([[0, 1, 2, 3, 2, 3]])


def test_positions_of_three_axes_are_not_taken_for_several_texts_in_a_row() -> None:
    model = tiny.make("gpt2")
    with ts.attach(model, ts.Infix(length=2)):
        start = {"output_start": torch.tensor([5])}
        check_output_start(model, start | {"position_ids": ONE.expand(3, 1, 6)}, trains=False)
        with pytest.raises(UserError, match="a row of several texts has more than one such place"):
            check_output_start(model, start | {"position_ids": ONE}, trains=False)
