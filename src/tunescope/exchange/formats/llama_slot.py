"""A context of any kind as a slot of a llama.cpp server: its keys and values, which the server reads as its own."""

from __future__ import annotations

import inspect
import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.attachment.attention.record import record
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import difference, sample
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import checkpoint, embeddings, llama_client
from tunescope.exchange.serving.refusals import check_contexts, check_tokenizer
from tunescope.system import files

ABOUT = "a prefix, a soft prompt or words as keys and values that a llama.cpp server restores into a slot"
SERVES = "llama-server of llama.cpp, as it comes (--slot-save-path), by client_llama.py"
ROUNDING = 2e-6  # transformers has the angles of rotations in float32
CLIENT, KEYS, VALUES = "client_llama.py", "keys.npy", "values.npy"
PAIRED = {"llama": True, "mistral": True, "qwen2": False, "qwen3": False}  # whether GGUF has rotated pairs side by side


def write(given: Outgoing, folder: Path) -> list[str]:
    """`keys.npy` and `values.npy`, both (layers, n, kv_heads * d), and a client that puts them into a slot.

    The server counts the context's positions as n, where a prefix may have taken none: its keys are turned as far, so
    that every text meets them as it did in tuning. Nothing is pickled.

    Raises:
        UserError: no context of a decoder, a family whose slots were not tried, a window, or scaled rotations.
    """
    check_contexts(given, "llama_slot")
    check_tokenizer(given, "llama_slot")
    _check_family(given)
    keys, values = _keys_values(given)
    if not bool(keys.isfinite().all() and values.isfinite().all()):
        raise UserError("The context holds numbers that are not finite: its training diverged. Export another run.")
    stored = _paired(keys) if PAIRED[given.model.config.model_type] else keys
    for name, made in ((KEYS, stored), (VALUES, values)):
        files.write(folder / name, _npy(made.transpose(1, 2).flatten(2)))
    start = tuple(embeddings.start(given))
    source = inspect.getsource(llama_client)
    files.write(folder / CLIENT, source.replace("START: Ids = ()", f"START: Ids = {start}").encode())
    checkpoint.describe(given, "llama_slot", folder, context={"tokens": keys.shape[2], "layers": len(keys)})
    return [f"{keys.shape[2]} positions in each of {len(keys)} layers; the text is sent behind as many stand-ins"]


def check(given: Outgoing, folder: Path) -> float:
    """The bare model behind the file's keys and values in transformers' own cache, against the attached model."""
    from transformers import DynamicCache

    keys, values = (torch.from_numpy(np.load(folder / name, allow_pickle=False)) for name in (KEYS, VALUES))
    n, heads = keys.shape[1], given.model.config.num_key_value_heads
    split = [each.to(given.model.device, given.model.dtype).view(len(each), n, heads, -1) for each in (keys, values)]
    if PAIRED[given.model.config.model_type]:
        split[0] = split[0].view(*split[0].shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
    ids = sample(given.model, n)["input_ids"]
    cache = DynamicCache()
    for layer, (key, value) in enumerate(zip(*split, strict=True)):
        cache.update(_rows(key, len(ids)), _rows(value, len(ids)), layer)
    with resting(given.model), torch.no_grad():
        got = given.model(input_ids=ids, past_key_values=cache).logits
        with attach(given.model, *given.artifacts, tokenizer=given.tokenizer):
            expected = given.model(input_ids=ids).logits
    return difference(got, expected)


def _rows(each: Tensor, count: int) -> Tensor:
    """(n, kv_heads, d) -> (rows, kv_heads, n, d)"""
    return each.transpose(0, 1).expand(count, -1, -1, -1)


def _npy(made: Tensor) -> bytes:
    stream = io.BytesIO()
    exact = made if made.dtype == torch.float64 else made.float()
    np.save(stream, exact.cpu().numpy(), allow_pickle=False)
    return stream.getvalue()


def _keys_values(given: Outgoing) -> tuple[Tensor, Tensor]:
    """(layers, kv_heads, n, d) each, as a text that begins n positions further on meets them."""
    ids = sample(given.model, 1)["input_ids"][:1, :2]
    with resting(given.model), attach(given.model, *given.artifacts, tokenizer=given.tokenizer) as tuned:
        seen = record(given.model, {"input_ids": ids}, "context_key", "context_value")
        begun = tuned.positions
    layers = range(len(seen) // 2)
    keys, values = (
        torch.stack([seen[f"decoder.{layer}.self.{name}"] for layer in layers])
        for name in ("context_key", "context_value")
    )
    return _turned(given, keys, keys.shape[2] - begun), values


def _turned(given: Outgoing, keys: Tensor, by: int) -> Tensor:
    """Keys that stand so many positions further on."""
    if by == 0:
        return keys
    rotary = given.model.model.rotary_emb
    cos, sin = rotary(keys.new_zeros(1), torch.tensor([[by]], device=keys.device))  # (1, 1, d)
    half = keys.shape[-1] // 2
    crossed = torch.cat([-keys[..., half:], keys[..., :half]], -1)
    turned: Tensor = keys * cos[0, 0] + crossed * sin[0, 0]
    return turned


def _paired(keys: Tensor) -> Tensor:
    """As llama.cpp has the keys of Llama: the two numbers that are turned together side by side."""
    return torch.stack(keys.chunk(2, -1), -1).flatten(-2)


def _check_family(given: Outgoing) -> None:
    config = given.model.config
    if config.model_type not in PAIRED:
        raise UserError(
            f"--to llama_slot was not tried on {config.model_type}: how llama.cpp keeps its keys is not known here. It "
            f"writes those of {', '.join(PAIRED)}."
        )
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        raise UserError("--to llama_slot: this model has a window, for which llama.cpp keeps a second cache.")
    if getattr(given.model.model.rotary_emb, "attention_scaling", 1.0) != 1.0 or "dynamic" in str(
        config.rope_parameters
    ):
        raise UserError("--to llama_slot: this model scales its rotations by the text's length.")
