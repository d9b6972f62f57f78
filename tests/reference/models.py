"""GPT-2 and BERT written out in plain torch, with a place for a change at every site and a prefix in its gated form.

change(site, layer, x, h, query) -> h, for the sites self.q .k .v .o, self.heads, self, ffn.in, ffn.out and ffn.
"""

from collections.abc import Callable
from typing import Any

import torch
from reference.unified import attend, gated_prefix, layer_norm
from torch import Tensor

Change = Callable[[str, int, Tensor, Tensor, Tensor | None], Tensor]
Prefix = Callable[[int], tuple[Tensor, Tensor] | None]


def same(site: str, layer: int, x: Tensor, h: Tensor, query: Tensor | None) -> Tensor:
    return h


def no_prefix(layer: int) -> None:
    return None


def split(x: Tensor, n_heads: int) -> Tensor:
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def block(
    x: Tensor, q: Tensor, k: Tensor, v: Tensor, sizes: tuple[int, int], visible: Tensor | None, around: Any
) -> Tensor:
    """Concatenated heads, before the output projection, changed where "self.heads" says so."""
    n_heads, layer = sizes
    change, prefix = around
    given = prefix(layer)
    parts = [split(t, n_heads) for t in (q, k, v)]
    heads = attend(*parts, visible) if given is None else gated_prefix(*parts, *given, visible)
    joined = heads.transpose(1, 2).reshape(q.shape)
    return change("self.heads", layer, x, joined, q)


def gpt2(model: Any, ids: Tensor, change: Change = same, prefix: Prefix = no_prefix) -> Tensor:
    """(batch, length) -> logits of a GPT2LMHeadModel."""
    w = dict(model.state_dict())
    length = ids.shape[1]
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][torch.arange(length)]
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    for i in range(model.config.n_layer):

        def at(name: str, i: int = i) -> Tensor:
            return w[f"transformer.h.{i}.{name}"]

        inner = layer_norm(x, at("ln_1.weight"), at("ln_1.bias"))
        q, k, v = (inner @ at("attn.c_attn.weight") + at("attn.c_attn.bias")).chunk(3, -1)
        q, k, v = (change(f"self.{n}", i, inner, t, None) for n, t in (("q", q), ("k", k), ("v", v)))
        heads = block(inner, q, k, v, (model.config.n_head, i), visible, (change, prefix))
        out = change("self.o", i, heads, heads @ at("attn.c_proj.weight") + at("attn.c_proj.bias"), None)
        x = x + change("self", i, inner, out, None)
        inner = layer_norm(x, at("ln_2.weight"), at("ln_2.bias"))
        hidden = change("ffn.in", i, inner, inner @ at("mlp.c_fc.weight") + at("mlp.c_fc.bias"), None)
        hidden = 0.5 * hidden * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)))
        out = change("ffn.out", i, hidden, hidden @ at("mlp.c_proj.weight") + at("mlp.c_proj.bias"), None)
        x = x + change("ffn", i, inner, out, None)
    x = layer_norm(x, w["transformer.ln_f.weight"], w["transformer.ln_f.bias"])
    return x @ w["lm_head.weight"].T


def bert(model: Any, ids: Tensor, change: Change = same, prefix: Prefix = no_prefix) -> Tensor:
    """(batch, length) -> last states of a BertModel."""
    w = dict(model.state_dict())
    eps = model.config.layer_norm_eps
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = x + w["embeddings.position_embeddings.weight"][torch.arange(ids.shape[1])]
    x = layer_norm(x, w["embeddings.LayerNorm.weight"], w["embeddings.LayerNorm.bias"], eps)
    for i in range(model.config.num_hidden_layers):

        def linear(name: str, t: Tensor, i: int = i) -> Tensor:
            return t @ w[f"encoder.layer.{i}.{name}.weight"].T + w[f"encoder.layer.{i}.{name}.bias"]

        def norm(name: str, t: Tensor, i: int = i) -> Tensor:
            return layer_norm(t, w[f"encoder.layer.{i}.{name}.weight"], w[f"encoder.layer.{i}.{name}.bias"], eps)

        names = (("q", "query"), ("k", "key"), ("v", "value"))
        q, k, v = (change(f"self.{n}", i, x, linear(f"attention.self.{m}", x), None) for n, m in names)
        heads = block(x, q, k, v, (model.config.num_attention_heads, i), None, (change, prefix))
        out = change("self.o", i, heads, linear("attention.output.dense", heads), None)
        x = norm("attention.output.LayerNorm", x + change("self", i, x, out, None))
        hidden = change("ffn.in", i, x, linear("intermediate.dense", x), None)
        hidden = 0.5 * hidden * (1 + torch.erf(hidden / 2**0.5))
        out = change("ffn.out", i, hidden, linear("output.dense", hidden), None)
        x = norm("output.LayerNorm", x + change("ffn", i, x, out, None))
    return x
