"""Tiny random models of the families of today that have no file of ours, and what to give them."""

import inspect
from typing import Any

import tiny
import torch
import transformers as tf
from zoo_decoders import DECODERS
from zoo_fields import Maker
from zoo_mixtures import HYBRIDS, MIXTURES, RECURRENT
from zoo_others import ENCODERS, PAIRS, SPEECH, VISION_MODELS

KINDS: dict[str, dict[str, Maker]] = {
    "decoder": DECODERS,
    "mixture": MIXTURES,
    "hybrid": HYBRIDS,
    "recurrent": RECURRENT,
    "encoder": ENCODERS,
    "encoder-decoder": PAIRS,
    "speech": SPEECH,
    "vision": VISION_MODELS,
}
ZOO: dict[str, Maker] = {name: maker for makers in KINDS.values() for name, maker in makers.items()}
AUTO = {
    "encoder": "AutoModel",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
    "speech": "AutoModelForSpeechSeq2Seq",
    "vision": "AutoModel",
}
LENGTH, DECODER_LENGTH = 7, 5
# To a text of seven these two attend whole, and from then on to every other.
LONGER = {"big_bird-sparse": 8, "bigbird_pegasus-sparse": 8}


def kind_of(name: str) -> str:
    """The one of KINDS that has the family."""
    return next(kind for kind, makers in KINDS.items() if name in makers)


def zoo(name: str, *, seed: int = 0, dtype: torch.dtype = torch.float64, attention: str | None = None) -> Any:
    """A tiny random model in eval mode, without dropout, whose weights, biases and norms are away from 0 and 1."""
    auto = getattr(tf, AUTO.get(kind_of(name), "AutoModelForCausalLM"))
    return tiny.build(auto, ZOO[name](), seed=seed, dtype=dtype, attention=attention)


def paddings(name: str) -> tuple[str, ...]:
    """Those that `inputs` makes for the family: speech and images have none."""
    return ("none",) if kind_of(name) in ("speech", "vision") else ("none", "left", "right")


def inputs(
    name: str, model: Any, padding: str = "none", rows: int = 2, length: int | None = None
) -> dict[str, torch.Tensor]:
    """What the model's forward needs. A padded row has three tokens less than the one above, and at least one.

    A text encoder's or an encoder side's tokens are padded, never the decoder's under an encoder. Padded decoders
    that take `position_ids` get those that count real tokens alone. In float64 an eager softmax makes a row that is
    all masked NaN, as those of left padding are: run the model within `tiny.Float64()`.
    """
    if padding not in paddings(name):
        raise ValueError(f"{name} takes no padding={padding!r}. Type one of: {', '.join(paddings(name))}.")
    kind = kind_of(name)
    if kind == "vision":
        side = model.config.image_size
        return {"pixel_values": _noise(model, rows, model.config.num_channels, side, side)}
    if kind == "speech":
        mels, frames = model.config.num_mel_bins, 2 * model.config.max_source_positions
        return {"input_features": _noise(model, rows, mels, frames), "decoder_input_ids": _decoded(rows)}
    given = _text(model, padding, rows, length or LONGER.get(name, LENGTH))
    return given | {"decoder_input_ids": _decoded(rows)} if kind == "encoder-decoder" else given


def takes(model: Any, argument: str) -> bool:
    """Whether the model's forward names it."""
    return argument in inspect.signature(model.forward).parameters


def _text(model: Any, padding: str, rows: int, length: int) -> dict[str, torch.Tensor]:
    text = tiny.ids(rows, length)
    if padding == "none":
        return {"input_ids": text}
    mask = torch.zeros_like(text)
    for row in range(rows):
        real = max(length - 3 * row, 1)
        mask[row, :real] = 1
    mask = mask.flip(1) if padding == "left" else mask
    given = {"input_ids": text * mask + model.config.pad_token_id * (1 - mask), "attention_mask": mask}
    if tiny.is_decoder(model) and takes(model, "position_ids"):
        given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return given


def _decoded(rows: int) -> torch.Tensor:
    return tiny.ids(rows, DECODER_LENGTH, seed=2)


def _noise(model: Any, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=model.dtype)
