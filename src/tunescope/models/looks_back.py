"""Whether a decoder reads nothing that stands behind a token. Tried, for a class by the name of a decoder may look both
ways: Gemma's by its config, and any whose config says `is_causal: false`, as embedding models made of decoders do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.models.family import find_family

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

LENGTH = 4


def check_looks_back(name: str, model: PreTrainedModel) -> None:
    """UserError for a decoder of which a token's logits change with the token behind it: it was shown its answers.

    A family that has a file is taken by its config, if that says nothing of looking both ways.
    """
    found = anatomy(model)
    if found.kind != "decoder" or model.device.type == "meta":
        return
    if find_family(model.config.model_type) is not None and not _says_both_ways(model.config):
        return
    rows = found.table.weight.shape[0]
    one = torch.full((1, LENGTH), rows // 2, device=found.device)
    other = one.clone()
    other[0, -1] += 1
    was_training = model.training
    model.eval()
    with torch.no_grad():
        first, second = (model(input_ids=ids, use_cache=False).logits[0, :-1] for ids in (one, other))
    model.train(was_training)
    rounding = torch.finfo(first.dtype).eps ** 0.5  # a mixture may take its experts' tokens in another order
    if (first - second).abs().max() > rounding * (first - first.mean(-1, keepdim=True)).abs().max():
        raise UserError(
            f"{name} is a {type(model).__name__} that looks ahead: what it says of a token changes with the tokens "
            "behind it, so it would be shown the answers that it is asked for. Give a decoder that does not, or an "
            "encoder."
        )


def _says_both_ways(config: PreTrainedConfig) -> bool:
    """Whether the config of a decoder says that it looks ahead, in the two ways that transformers has for it."""
    text = config.get_text_config()
    return getattr(text, "is_causal", None) is False or bool(getattr(text, "use_bidirectional_attention", None))
