"""What a family's own code is tried on: the shortest inputs that it takes, and a line for the user where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SOURCE, TARGET = 3, 2  # lengths of the texts: they tell self from cross attention


def takes_tokens(model: PreTrainedModel) -> bool:
    """Whether its input is token ids, and not an image or sound."""
    return str(model.base_model.main_input_name) == "input_ids"


def trial_inputs(model: PreTrainedModel) -> dict[str, Tensor]:
    """Two rows of text, of which the second is padded on the right; or one image, or one piece of sound.

    Raises UserError for a family that takes anything else.
    """
    config, device = model.config, anatomy(model).device
    ids = torch.arange(2, 2 + SOURCE, device=device).expand(2, -1)
    given: dict[str, Tensor] = {}
    if takes_tokens(model):
        mask = torch.ones_like(ids)
        mask[1, -1:] = 0
        is_read = device.type != "meta" or anatomy(model).kind == "decoder"  # "meta" tensors hold no padding to read,
        given = {"input_ids": ids} | ({"attention_mask": mask} if is_read else {})  # nor positions, without a mask
    else:
        name = str(model.base_model.main_input_name)
        given = {name: _waves(_shape(model, name), anatomy(model).weight)}
    rows = len(next(iter(given.values())))
    return given | ({"decoder_input_ids": ids[:rows, :TARGET]} if config.is_encoder_decoder else {})


def _shape(model: PreTrainedModel, name: str) -> tuple[int, ...]:
    config = model.config
    if name == "pixel_values" and hasattr(config, "image_size"):
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        return 1, int(config.num_channels), int(height), int(width)
    if name == "input_features" and hasattr(config, "max_source_positions"):
        return 1, int(config.num_mel_bins), 2 * int(config.max_source_positions)
    raise UserError(
        f"Family {config.model_type!r} takes {name!r}, which tunescope cannot make to try it on: contexts cannot be "
        "attached. LoRA and adapters at sites=all-linear, bias and full still can."
    )


def _waves(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Numbers in [-1, 1], no row of them like another."""
    return torch.arange(torch.Size(shape).numel(), device=like.device).sin().to(like.dtype).view(shape)


@contextmanager
def tried(model: PreTrainedModel, what: str) -> Iterator[None]:
    """Within it the family's own code is run; UserError, in a line, for whatever it raises but a lack of memory.

    Autocast of the caller's is off: what is found out, or kept, is of the model as it is.
    """
    device = anatomy(model).device.type
    try:
        with nullcontext() if device == "meta" else torch.autocast(device, enabled=False):
            yield
    except (UserError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as problem:
        reason = " ".join(str(problem).split())[:200]
        raise UserError(
            f"Family {model.config.model_type!r}, {what}: its own code fails ({type(problem).__name__}: {reason})."
        ) from problem
