"""Attention with a prefix or an infix, row by row and head by head, as the papers write it. Slow, and not our code.

It is registered with transformers under its own name, with transformers' own additive masks, and finds the contexts
on the modules that `standing` puts them on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

PATHS = {  # where each family keeps attention, by the name that a context's tensors have
    "gpt2": {"decoder.{}.self": "transformer.h.{}.attn"},
    "gpt_neox": {"decoder.{}.self": "gpt_neox.layers.{}.attention"},
    "opt": {"decoder.{}.self": "model.decoder.layers.{}.self_attn"},
    **{
        name: {"decoder.{}.self": "model.layers.{}.self_attn"}
        for name in ("llama", "mistral", "qwen2", "qwen3", "gemma2", "phi")
    },
    **{name: {"encoder.{}.self": "encoder.layer.{}.attention.self"} for name in ("bert", "roberta")},
    "distilbert": {"encoder.{}.self": "transformer.layer.{}.attention"},
    "t5": {
        "encoder.{}.self": "encoder.block.{}.layer.0.SelfAttention",
        "decoder.{}.self": "decoder.block.{}.layer.0.SelfAttention",
        "decoder.{}.cross": "decoder.block.{}.layer.1.EncDecAttention",
    },
    **{
        name: {
            "encoder.{}.self": "model.encoder.layers.{}.self_attn",
            "decoder.{}.self": "model.decoder.layers.{}.self_attn",
            "decoder.{}.cross": "model.decoder.layers.{}.encoder_attn",
        }
        for name in ("bart", "mbart")
    },
}


def modules(model: Any) -> dict[str, torch.nn.Module]:
    """ "decoder.0.self" -> attention module, of the two layers that the tiny models have."""
    found = PATHS[model.config.model_type]
    return {name.format(i): model.get_submodule(path.format(i)) for name, path in found.items() for i in range(2)}


def literal(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    extra_key, extra_value, start = getattr(module, "literal_context", (None, None, None))
    rows, heads, length, _ = query.shape
    per_group = heads // key.shape[1]
    n = 0 if extra_key is None else extra_key.shape[1]
    weights = query.new_zeros(rows, heads, length, n + key.shape[2])
    out = query.new_zeros(rows, heads, length, value.shape[3])
    for row in range(rows):
        for head in range(heads):
            group = head // per_group
            k, v = key[row, group], value[row, group]
            if n:
                k, v = torch.cat([extra_key[group], k]), torch.cat([extra_value[group], v])
            scores = scaling * (query[row, head] @ k.T)
            if kwargs.get("softcap") is not None:
                scores = torch.tanh(scores / kwargs["softcap"]) * kwargs["softcap"]
            add = torch.zeros_like(scores)
            if attention_mask is not None:
                add[:, n:] += attention_mask[row, 0]
            if kwargs.get("position_bias") is not None:
                bias = kwargs["position_bias"]
                add[:, n:] += bias[row if len(bias) > 1 else 0, head]
            if start is not None and length == key.shape[2]:
                for asked in range(length):
                    if asked < start[row]:
                        add[asked, :n] = -torch.inf
            weights[row, head] = torch.softmax(scores + add, -1)
            out[row, head] = weights[row, head] @ v
    return out.transpose(1, 2).contiguous(), weights


AttentionInterface.register("literal", literal)
AttentionMaskInterface.register("literal", eager_mask)


@contextmanager
def standing(model: Any, tensors: dict[str, Tensor], start: Tensor | None = None) -> Iterator[None]:
    """The keys and values ("decoder.0.self.key") stand before the text; seen from `start` on, where it is given."""
    before = model.config._attn_implementation
    model.set_attn_implementation("literal")
    for name, module in modules(model).items():
        module.literal_context = (tensors[f"{name}.key"], tensors[f"{name}.value"], start)
    try:
        yield
    finally:
        for module in modules(model).values():
            del module.literal_context
        model.set_attn_implementation(before)
