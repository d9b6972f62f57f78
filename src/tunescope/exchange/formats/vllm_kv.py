"""A context of any kind as keys and values that a vLLM server takes in the place of a prompt's beginning."""

from __future__ import annotations

import hashlib
import random
from importlib import resources
from pathlib import Path

import numpy as np
import torch

from tunescope.errors import UserError
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import checkpoint, context_cache, embeddings
from tunescope.exchange.serving.refusals import check_contexts, check_tokenizer
from tunescope.system import files

ABOUT = "a prefix, a soft prompt or words as keys and values, with a KV connector for vLLM; not run on a GPU here"
SERVES = "vLLM's v1 engine on one GPU, by vllm_context.py; tested here against its interface, not run on a GPU"
rounding = context_cache.rounding
CLIENT, KEYS, VALUES = "vllm_context.py", "keys.npy", "values.npy"


def write(given: Outgoing, folder: Path) -> list[str]:
    """`keys.npy` and `values.npy`, both (layers, n, kv_heads, d), and a client that is vLLM's KV connector too.

    The stand-ins for the context's positions are drawn by its keys, so that vLLM's cache of prompts tells one context
    from another.

    Raises:
        UserError: no context of a decoder, one of a single position, a family that was not tried, a window, or
            scaled rotations.
    """
    check_contexts(given, "vllm_kv")
    check_tokenizer(given, "vllm_kv")
    context_cache.check_family(given, "vllm_kv")
    keys, values = context_cache.keys_values(given)
    if keys.shape[2] < 2:
        raise UserError("--to vllm_kv: one token that stands for the context would be found in ordinary texts too.")
    for name, made in ((KEYS, keys), (VALUES, values)):
        files.write(folder / name, context_cache.npy(made.transpose(1, 2)))
    constants = {"STAND_INS": _stand_ins(given, (folder / KEYS).read_bytes(), keys.shape[2])}
    constants["START"] = tuple(embeddings.start(given))
    source = (resources.files("tunescope.exchange.serving") / "vllm_context.py").read_text("utf-8")
    for name, ids in constants.items():
        source = source.replace(f"{name}: Ids = ()", f"{name}: Ids = {ids}")
    files.write(folder / CLIENT, source.encode())
    checkpoint.describe(given, "vllm_kv", folder, context={"tokens": keys.shape[2], "layers": len(keys)})
    return [
        f"{keys.shape[2]} positions in each of {len(keys)} layers, behind as many stand-ins; penalties of repeated "
        "tokens would count these",
        "the connector was not run on a GPU here, only against a stub of vLLM's interface",
        *embeddings.line_notes(given.artifacts, given.tokenizer),
    ]


def check(given: Outgoing, folder: Path) -> float:
    """The bare model behind the file's keys and values in transformers' own cache, against the attached model."""
    keys, values = (torch.from_numpy(np.load(folder / name, allow_pickle=False)) for name in (KEYS, VALUES))
    return context_cache.difference_behind(given, keys, values)


def _stand_ins(given: Outgoing, drawn_by: bytes, count: int) -> tuple[int, ...]:
    """Ordinary tokens, not special ones, drawn by the bytes."""
    special = set(given.tokenizer.all_special_ids)
    known = min(len(given.tokenizer), given.model.config.get_text_config().vocab_size)
    ordinary = [one for one in range(known) if one not in special]
    return tuple(random.Random(hashlib.sha256(drawn_by).digest()).choices(ordinary, k=count))
