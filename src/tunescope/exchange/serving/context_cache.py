"""A context as the keys and values that a server's cache holds, on families whose rotations are known."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.attachment.attention.record import record
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import difference, sample
from tunescope.exchange.outgoing import Outgoing
from tunescope.methods.artifact import Artifact
from tunescope.models.positions import RESCALED

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROUNDING = 1e-4  # transformers has the angles of rotations in float32, whatever the model has


def keys_values(given: Outgoing) -> tuple[Tensor, Tensor]:
    """(layers, kv_heads, n, d) each, rotated, as a text that begins n positions further on meets them.

    A server counts the context's positions as n, where a prefix may have taken none: its keys are turned as far, so
    that every text meets them as it did in tuning.

    Raises:
        UserError: numbers that are not finite.
    """
    ids = sample(given.model, 1)["input_ids"][:1, :2]
    with resting(given.model), attach(given.model, *given.artifacts, tokenizer=given.tokenizer) as tuned:
        seen = record(given.model, {"input_ids": ids}, "context_key", "context_value")
        begun = tuned.positions
    layers = range(len(seen) // 2)
    keys, values = (
        torch.stack([seen[f"decoder.{layer}.self.{name}"].to(given.model.device) for layer in layers])
        for name in ("context_key", "context_value")
    )
    if not bool(keys.isfinite().all() and values.isfinite().all()):
        raise UserError("The context holds numbers that are not finite: its training diverged. Export another run.")
    return _turned(given, keys, keys.shape[2] - begun), values


def rounding(_given: Outgoing) -> float:
    """How far outputs may be apart for rounding alone, where a server turns keys in its own precision."""
    return ROUNDING


def npy(made: Tensor) -> bytes:
    """The tensor as a .npy file, in float32 at least; nothing is pickled."""
    stream = io.BytesIO()
    exact = made if made.dtype == torch.float64 else made.float()
    np.save(stream, exact.cpu().numpy(), allow_pickle=False)
    return stream.getvalue()


def difference_behind(given: Outgoing, keys: Tensor, values: Tensor, beside: Sequence[Artifact] = ()) -> float:
    """The bare model behind these (layers, n, kv_heads, d) in transformers' own cache, against the attached model.

    beside: LoRAs that a server adds to the bare model.
    """
    from transformers import DynamicCache

    ids = sample(given.model, keys.shape[1])["input_ids"]
    cache = DynamicCache()
    for layer, pair in enumerate(zip(keys, values, strict=True)):
        where = next(given.model.model.layers[layer].parameters()).device  # a model may be split over GPUs
        own = [each.to(where, given.model.dtype).transpose(0, 1) for each in pair]
        cache.update(*(each.expand(len(ids), -1, -1, -1) for each in own), layer)
    with resting(given.model), torch.no_grad():
        with attach(given.model, *beside) if beside else nullcontext():
            got = given.model(input_ids=ids, past_key_values=cache).logits
        with attach(given.model, *given.artifacts, tokenizer=given.tokenizer):
            expected = given.model(input_ids=ids).logits
    return difference(got, expected)


def check_family(given: Outgoing, form: str) -> None:
    """UserError for a family whose cache is not known, a window, or rotations that hang on the text's length."""
    config = given.model.config
    if config.model_type not in FAMILIES:
        raise UserError(
            f"--to {form} was not tried on {config.model_type}: how a server keeps its keys is not known here. It "
            f"writes those of {', '.join(FAMILIES)}."
        )
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        raise UserError(f"--to {form}: this model has a window, for which servers keep a second cache.")
    is_scaled = getattr(given.model.model.rotary_emb, "attention_scaling", 1.0) != 1.0
    if is_scaled or any(kind in str(config.rope_parameters) for kind in RESCALED):
        raise UserError(f"--to {form}: this model scales its rotations by the text's length.")


def _turned(given: Outgoing, keys: Tensor, by: int) -> Tensor:
    """Keys that stand so many positions further on."""
    if by == 0:
        return keys
    rotary = given.model.model.rotary_emb
    cos, sin = rotary(keys.new_zeros(1), torch.tensor([[by]], device=keys.device))  # (1, 1, d)
    half = keys.shape[-1] // 2
    crossed = torch.cat([-keys[..., half:], keys[..., :half]], -1)
    turned: Tensor = keys * cos[0, 0].to(keys.device) + crossed * sin[0, 0].to(keys.device)
    return turned
