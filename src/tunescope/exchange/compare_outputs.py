"""The same few tokens for every model, to compare what was written with what is attached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, PatchDelta
from tunescope.models.anatomy import anatomy
from tunescope.models.positions import first_position

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.utils import ModelOutput

LENGTH = 8
MOST = 512


def sample(model: PreTrainedModel, taken: int = 0, also: Sequence[int] = ()) -> dict[str, Tensor]:
    """Two rows of ids, drawn by a fixed seed, with their mask: what fits beside a context of `taken` positions.

    also: ids that stand in more rows, below them.

    Raises UserError where not even one token does.
    """
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    room = LENGTH if limit is None else min(LENGTH, limit - first_position(model) - taken)
    if room < 1:
        raise UserError(f"A context of {taken} positions leaves no room for a text in this model of {limit}.")
    draw = torch.Generator().manual_seed(0)
    device = anatomy(model).device
    ids = torch.randint(config.vocab_size, (2 + math.ceil(len(also) / room), room), generator=draw)
    ids.view(-1)[2 * room :][: len(also)] = torch.tensor(also, dtype=ids.dtype)
    ids = ids.to(device)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return given | {"decoder_input_ids": ids.flip(1)} if anatomy(model).kind == "encoder-decoder" else given


def outputs(model: PreTrainedModel, artifacts: Sequence[Artifact] = (), also: Sequence[int] = ()) -> Tensor:
    """Logits, or an encoder's last states, of the sample with the artifacts attached; the model is left as it was."""
    with resting(model), torch.no_grad():
        if not artifacts:
            return read(model(**sample(model, also=also)))
        with attach(model, *artifacts) as tuned:
            return read(model(**sample(model, tuned.positions, also)))


def changed_ids(model: PreTrainedModel, artifacts: Sequence[Artifact]) -> list[int]:
    """The numbers of changed rows that are tokens too, `MOST` at most: a sample of a vocabulary would hardly hold them.

    Of a matrix that is no embedding they are tokens like any other.
    """
    rows = [row for one in artifacts if isinstance(one.spec, PatchDelta) for row in one.spec.rows]
    return sorted({row for row in rows if row < model.config.get_text_config().vocab_size})[:MOST]


def read(output: ModelOutput) -> Tensor:
    """The logits of what a model gives, or its last states where it has none."""
    found: Tensor = output.logits if output.get("logits") is not None else output.last_hidden_state
    return found


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest expected value; infinite where the shapes differ or a number is none."""
    if found.shape != expected.shape:
        return float("inf")
    apart = (found.double() - expected.double()).abs().max() / expected.double().abs().max()
    return float(apart) if bool(apart.isfinite()) else float("inf")
