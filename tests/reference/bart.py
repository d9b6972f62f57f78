"""BART written out in plain torch, with a place for a change at every site of both stacks, cross attention too."""

from typing import Any

import torch
from reference.models import Change, Given, Prefix, block, no_prefix, same
from reference.unified import layer_norm
from torch import Tensor


def bart(model: Any, given: Given, change: Change = same, prefix: Prefix = no_prefix) -> Tensor:
    """{"input_ids", "decoder_input_ids"} -> logits of a BartForConditionalGeneration."""
    around = (change, prefix)
    source = _stack(model, "encoder", given["input_ids"], None, around)
    states = _stack(model, "decoder", given["decoder_input_ids"], source, around)
    return states @ model.state_dict()["model.shared.weight"].T + model.state_dict()["final_logits_bias"]


def _stack(model: Any, stack: str, ids: Tensor, source: Tensor | None, around: Any) -> Tensor:
    start = f"model.{stack}."
    w = {name.removeprefix(start): t for name, t in model.state_dict().items() if name.startswith(start)}
    length = ids.shape[1]
    x = model.state_dict()["model.shared.weight"][ids] + w["embed_positions.weight"][torch.arange(length) + 2]
    x = layer_norm(x, w["layernorm_embedding.weight"], w["layernorm_embedding.bias"])
    visible = None if source is None else torch.ones(length, length, dtype=torch.bool).tril()
    for i in range(2):
        own = {name.removeprefix(f"layers.{i}."): t for name, t in w.items() if name.startswith(f"layers.{i}.")}
        n_heads = getattr(model.config, f"{stack}_attention_heads")
        x = _attention(own, f"{stack}.{i}.self", "self_attn", (x, x), n_heads, visible, around)
        if source is not None:
            x = _attention(own, f"{stack}.{i}.cross", "encoder_attn", (x, source), n_heads, None, around)
        x = _feed_forward(own, f"{stack}.{i}", x, around[0])
    return x


def _linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _attention(
    w: dict[str, Tensor], name: str, path: str, given: tuple[Tensor, Tensor], n_heads: int, visible: Any, around: Any
) -> Tensor:
    """The block with its residual and the norm behind it."""
    change = around[0]
    x, source = given
    q, k, v = (
        change(f"{name}.{which}", at, _linear(w, f"{path}.{which}_proj", at), None)
        for which, at in (("q", x), ("k", source), ("v", source))
    )
    heads = block(name, x, (q, k, v), n_heads, visible, around)
    out = change(f"{name}.o", heads, _linear(w, f"{path}.out_proj", heads), None)
    x = x + change(name, x, out, None)
    return layer_norm(x, w[f"{path}_layer_norm.weight"], w[f"{path}_layer_norm.bias"])


def _feed_forward(w: dict[str, Tensor], name: str, x: Tensor, change: Change) -> Tensor:
    hidden = change(f"{name}.ffn.in", x, _linear(w, "fc1", x), None)
    hidden = 0.5 * hidden * (1 + torch.erf(hidden / 2**0.5))
    out = change(f"{name}.ffn.out", hidden, _linear(w, "fc2", hidden), None)
    x = x + change(f"{name}.ffn", x, out, None)
    return layer_norm(x, w["final_layer_norm.weight"], w["final_layer_norm.bias"])
