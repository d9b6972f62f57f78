"""Whether a decoder reads a row that is padded on the left as it reads it alone. Tried, for some do not.

Recurrent layers may read padding as text, others count columns where tokens are meant, and those that choose a few keys
(Doge, DeepSeek 3.2) choose by columns among those that are worth the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tunescope.attachment.share import as_first
from tunescope.attachment.site_hooks import computed_in
from tunescope.models.anatomy import anatomy
from tunescope.models.family import find_family
from tunescope.tasks.answers.batches import evaluating, padded
from tunescope.tasks.answers.generation_config import only

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LONG, SHORT = 8, 3  # tokens of the longest and the shortest row of a try; the longest has more where rows do
WRITTEN = 3  # tokens behind them: what is right in the first pass may be wrong on its cache

_TRIED: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # the longest row that was right; 0 where one was not


def takes_left_padding(model: PreTrainedModel, lengths: Sequence[int], batch_size: int) -> bool:
    """Whether batches of rows of these lengths may be padded on the left: each row is then read as it is alone."""
    return len(set(lengths)) < 2 or writes_in_batches(model, lengths, batch_size)


def writes_in_batches(model: PreTrainedModel, lengths: Sequence[int], batch_size: int) -> bool:
    """Whether what is written behind rows of these lengths in batches, padded on the left, is what is written alone.

    RWKV's is not, of rows of one length either: on its state transformers mixes the rows of a batch. A family that has
    a file is taken to be right, and what is no decoder is padded on the right. Any other is tried once, and again for
    longer rows.
    """
    if batch_size == 1 or not lengths or find_family(model.config.model_type) is not None:
        return True
    if anatomy(model).kind != "decoder":
        return True
    known, longest = _TRIED.get(model), max(lengths)
    if known is None or 0 < known < longest:
        known = _TRIED[model] = as_first(model, longest if _is_as_alone(model, longest) else 0)
    return known > 0


def _is_as_alone(model: PreTrainedModel, longest: int) -> bool:
    token = anatomy(model).table.weight.shape[0] // 2
    long = max(LONG, longest + 1 - WRITTEN)  # what is written takes positions too, but for its last token
    rows = [[token + place % 5 for place in range(size)] for size in (long, 3 * long // 4, SHORT)]
    rows.append([token // 2 + place * (place + 3) % token for place in range(long - 1)])  # few keys alike
    with evaluating(model):
        together = _logits(model, rows, token)[1:]
        alone = torch.cat([_logits(model, [row], token) for row in rows[1:]])
    types = torch.float32, computed_in(model.device.type) or model.dtype
    rounding = max(torch.finfo(one).eps for one in types) ** 0.5
    spread = (alone - alone.mean(-1, keepdim=True)).abs().mean((1, 2))
    off = (together - alone).abs().mean((1, 2))  # means: a router may be in two minds of one token
    return bool((off <= rounding * spread).all())


def _logits(model: PreTrainedModel, rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    """(rows, WRITTEN, vocabulary), behind each row and behind the same token, written again and again."""
    from transformers import GenerationConfig, LogitsProcessorList

    ids, mask = padded(rows, pad, model.device, left=True)
    config = GenerationConfig(
        num_beams=1,
        max_new_tokens=WRITTEN,
        pad_token_id=pad,
        use_cache=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    same = LogitsProcessorList([lambda _ids, scores: torch.zeros_like(scores)])
    with only(model, config):
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=config, logits_processor=same)
    return torch.stack(out.logits, 1)  # float32, whatever the model computes in
