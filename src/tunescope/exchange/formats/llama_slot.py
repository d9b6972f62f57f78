"""A context of any kind as a slot of a llama.cpp server, whose keys and values it reads as its own; LoRA beside it."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import checkpoint, context_cache, embeddings, gguf_lora, llama_client
from tunescope.exchange.serving.refusals import check_contexts, check_tokenizer
from tunescope.methods.deltas.lora import LoRA
from tunescope.system import files

ABOUT = "a prefix, a soft prompt or words as keys and values that a llama.cpp server restores; a LoRA beside them"
SERVES = "llama-server of llama.cpp, as it comes (--slot-save-path), by client_llama.py"
CLIENT, KEYS, VALUES = "client_llama.py", "keys.npy", "values.npy"
SERVER = "llama-server -m MODEL.gguf"  # in the words of the client
PAIRED = ("llama", "mistral")  # GGUF has their rotated pairs side by side


def write(given: Outgoing, folder: Path) -> list[str]:
    """`keys.npy` and `values.npy`, both (layers, n, kv_heads * d), and a client that puts them into a slot.

    A LoRA tuned with the context is a file of its own, `lora.gguf`, under which the keys and values were made.

    Raises:
        UserError: no context of a decoder, a family whose slots were not tried, a window, or scaled rotations; of a
            LoRA as `gguf_lora.write` says.
    """
    contexts, beside = _parted(given)
    check_contexts(contexts, "llama_slot")
    check_tokenizer(given, "llama_slot")
    context_cache.check_family(given, "llama_slot")
    keys, values = context_cache.keys_values(given)
    stored = _paired(keys) if given.model.config.model_type in PAIRED else keys
    for name, made in ((KEYS, stored), (VALUES, values)):
        files.write(folder / name, context_cache.npy(made.transpose(1, 2).flatten(2)))
    start = tuple(embeddings.start(given))
    source = inspect.getsource(llama_client).replace("START: Ids = ()", f"START: Ids = {start}")
    notes = gguf_lora.write(beside, folder) if beside.artifacts else []
    if notes:
        source = source.replace(SERVER, f"{SERVER} --lora {gguf_lora.FILE}")
    files.write(folder / CLIENT, source.encode())
    checkpoint.describe(given, "llama_slot", folder, context={"tokens": keys.shape[2], "layers": len(keys)})
    return [
        f"{keys.shape[2]} positions in each of {len(keys)} layers; the text is sent behind as many stand-ins",
        *embeddings.line_notes(given.artifacts, given.tokenizer),
        *notes,
    ]


def check(given: Outgoing, folder: Path) -> float:
    """The bare model behind the file's keys and values in transformers' own cache, against the attached model."""
    keys, values = (torch.from_numpy(np.load(folder / name, allow_pickle=False)) for name in (KEYS, VALUES))
    heads = given.model.config.num_key_value_heads
    keys, values = (each.view(*each.shape[:2], heads, -1) for each in (keys, values))
    if given.model.config.model_type in PAIRED:
        keys = keys.view(*keys.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
    _, beside = _parted(given)
    again = gguf_lora.read_back(beside, folder) if beside.artifacts else []
    return context_cache.difference_behind(given, keys, values, again)


def rounding(given: Outgoing) -> float:
    """How far outputs may be apart for rounding alone: of keys that a server turns, or of a LoRA's file."""
    lora = gguf_lora.ROUNDING if _parted(given)[1].artifacts else 0.0
    return max(lora, context_cache.ROUNDING)


def _parted(given: Outgoing) -> tuple[Outgoing, Outgoing]:
    """What makes keys and values, and the LoRAs beside it; LoRAs alone are nothing beside."""
    loras = tuple(one for one in given.artifacts if isinstance(one.spec, LoRA))
    rest = tuple(one for one in given.artifacts if not isinstance(one.spec, LoRA))
    return (
        (replace(given, artifacts=rest), replace(given, artifacts=loras))
        if rest
        else (given, replace(given, artifacts=()))
    )


def _paired(keys: Tensor) -> Tensor:
    """As llama.cpp has the keys of Llama: the two numbers that are turned together side by side."""
    return torch.stack(keys.chunk(2, -1), -1).flatten(-2)
