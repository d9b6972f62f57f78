"""Attaching LoRA to a model of SmolLM2-135M's shape: the first time, when its sites are looked for, and again."""

from __future__ import annotations

import time
from statistics import median

import torch
import transformers as tf

import tunescope as ts
from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.models import Scale

SHAPE = {
    "full": {"num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49152},
    "tiny": {"num_hidden_layers": 2, "hidden_size": 72, "intermediate_size": 96, "vocab_size": 97},
}


def run(scale: Scale) -> Result:
    shape = SHAPE[scale.name]
    cold, warm = [], []
    for number in range(scale.rounds):
        model = _model(shape, number)
        cold.append(_attaching(model))
        warm.append(_attaching(model))
    checks = [
        Check("seconds to attach LoRA to 30 layers, sites looked for", median(cold), 2.0),
        Check("seconds to attach it again", median(warm), 0.05),
    ]
    return Result([], checks, {**shape, "rounds": scale.rounds})


def _model(shape: dict[str, int], number: int) -> tf.LlamaForCausalLM:
    """One whose sites are not known yet: no other has its config."""
    torch.manual_seed(0)
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}
    config = tf.LlamaConfig(**shape, **heads, max_position_embeddings=4096 + number)
    return tf.LlamaForCausalLM(config).eval()


def _attaching(model: tf.LlamaForCausalLM) -> float:
    start = time.perf_counter()
    tuned = ts.attach(model, ts.LoRA(rank=8))
    took = time.perf_counter() - start
    tuned.detach()
    return took
