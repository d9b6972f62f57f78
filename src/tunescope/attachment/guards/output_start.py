"""An infix and a reweight act from where a row's output begins: calls that do not say where are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from tunescope.attachment.guards.marks import told_guidance, told_labels, told_start
from tunescope.errors import UserError
from tunescope.models.positions import seen_by, text_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

START = "output_start=(batch,), the index of each row's last input token"


def check_output_start(model: PreTrainedModel, given: Mapping[str, Any], *, trains: bool) -> None:
    """Without a cache, which may be a step of decoding that reads the whole text again, the output's start is told.

    So it is where what acts from there is trained on a text, or a loss over one is asked for: else the last token
    alone feels it, whose logit such a loss leaves out. Raises UserError where it is not, for texts packed into one row,
    and for guidance, whose second text begins elsewhere.
    """
    _check_guidance(model)
    if given.get("output_start") is None and told_start(model) is None:
        _check_untold(model, given, trains=trains and torch.is_grad_enabled())
    positions = given.get("position_ids")
    if positions is None or positions.dim() != 2 or given.get("attention_mask") is not None:
        return  # of three axes, as beside a picture, they go back within one text
    if bool((positions.diff(dim=-1) < 0).any()):
        raise UserError(
            "An infix, and a reweight, act from where a row's output begins, and a row of several texts has more than "
            "one such place. Give each text a row of its own, padded."
        )


def _check_guidance(model: PreTrainedModel) -> None:
    if (scale := told_guidance(model)) != 1:
        raise UserError(
            f"generate() with guidance_scale={scale:g} reads a second text beside each row, and an infix, as a "
            "reweight, is told of the rows alone where the output begins. Pass guidance_scale=1, or take a prefix."
        )


def _check_untold(model: PreTrainedModel, given: Mapping[str, Any], *, trains: bool) -> None:
    """Where the last token of the call is not, or may not be, where the output begins."""
    if given.get("use_cache") is False:
        raise UserError(f"An infix without a cache needs {START}, and so does a reweight; generate() tells it.")
    text = text_of(given)
    columns = 0 if text is None else text.shape[1]
    if columns > 1 and not seen_by(given) and (trains or told_labels(model) == columns):
        what = "An infix that is trained" if trains else "The loss over a text with an infix"
        raise UserError(
            f"{what} needs {START}, and so does a reweight: without it only the last token of a row feels it, which "
            "the loss over a text leaves out. A Trainer hands that column of the rows on with "
            "remove_unused_columns=False."
        )
