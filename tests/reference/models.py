"""GPT-2 and BERT written out in plain torch, with a place for a change at every site and a prefix in its gated form.

change(site, x, h, query) -> h, for the sites self.q .k .v .o, self.heads, self, ffn.in, ffn.out and ffn of every layer,
by their whole names ("decoder.0.self.q"); prefix(name) -> key and value of an attention module ("decoder.0.self").
"""

from collections.abc import Callable
from typing import Any

import torch
from reference.unified import attend, gated_prefix, layer_norm
from torch import Tensor

Change = Callable[[str, Tensor, Tensor, Tensor | None], Tensor]
Prefix = Callable[[str], tuple[Tensor, Tensor] | None]
Given = dict[str, Tensor]


def same(site: str, x: Tensor, h: Tensor, query: Tensor | None) -> Tensor:
    return h


def no_prefix(name: str) -> None:
    return None


def split(x: Tensor, n_heads: int) -> Tensor:
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def block(
    name: str, x: Tensor, parts: tuple[Tensor, Tensor, Tensor], n_heads: int, visible: Tensor | None, around: Any
) -> Tensor:
    """Concatenated heads of that attention module, before the output projection, changed at "NAME.heads"."""
    q, k, v = parts
    change, prefix = around
    given = prefix(name)
    split_up = [split(t, n_heads) for t in (q, k, v)]
    heads = attend(*split_up, visible) if given is None else gated_prefix(*split_up, *given, visible)
    joined = heads.transpose(1, 2).reshape(q.shape)
    return change(f"{name}.heads", x, joined, q)


def gpt2(model: Any, given: Given, change: Change = same, prefix: Prefix = no_prefix) -> Tensor:
    """(batch, length) -> logits of a GPT2LMHeadModel."""
    w, ids = dict(model.state_dict()), given["input_ids"]
    length = ids.shape[1]
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][torch.arange(length)]
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    for i in range(model.config.n_layer):

        def at(name: str, i: int = i) -> Tensor:
            return w[f"transformer.h.{i}.{name}"]

        inner = layer_norm(x, at("ln_1.weight"), at("ln_1.bias"))
        q, k, v = (inner @ at("attn.c_attn.weight") + at("attn.c_attn.bias")).chunk(3, -1)
        q, k, v = (change(f"decoder.{i}.self.{n}", inner, t, None) for n, t in (("q", q), ("k", k), ("v", v)))
        heads = block(f"decoder.{i}.self", inner, (q, k, v), model.config.n_head, visible, (change, prefix))
        out = change(f"decoder.{i}.self.o", heads, heads @ at("attn.c_proj.weight") + at("attn.c_proj.bias"), None)
        x = x + change(f"decoder.{i}.self", inner, out, None)
        inner = layer_norm(x, at("ln_2.weight"), at("ln_2.bias"))
        hidden = change(f"decoder.{i}.ffn.in", inner, inner @ at("mlp.c_fc.weight") + at("mlp.c_fc.bias"), None)
        hidden = 0.5 * hidden * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)))
        out = change(f"decoder.{i}.ffn.out", hidden, hidden @ at("mlp.c_proj.weight") + at("mlp.c_proj.bias"), None)
        x = x + change(f"decoder.{i}.ffn", inner, out, None)
    x = layer_norm(x, w["transformer.ln_f.weight"], w["transformer.ln_f.bias"])
    return x @ w["lm_head.weight"].T


def bert(model: Any, given: Given, change: Change = same, prefix: Prefix = no_prefix) -> Tensor:
    """(batch, length) -> last states of a BertModel."""
    w, ids = dict(model.state_dict()), given["input_ids"]
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
        q, k, v = (change(f"encoder.{i}.self.{n}", x, linear(f"attention.self.{m}", x), None) for n, m in names)
        heads = block(f"encoder.{i}.self", x, (q, k, v), model.config.num_attention_heads, None, (change, prefix))
        out = change(f"encoder.{i}.self.o", heads, linear("attention.output.dense", heads), None)
        x = norm("attention.output.LayerNorm", x + change(f"encoder.{i}.self", x, out, None))
        hidden = change(f"encoder.{i}.ffn.in", x, linear("intermediate.dense", x), None)
        hidden = 0.5 * hidden * (1 + torch.erf(hidden / 2**0.5))
        out = change(f"encoder.{i}.ffn.out", hidden, linear("output.dense", hidden), None)
        x = norm("output.LayerNorm", x + change(f"encoder.{i}.ffn", x, out, None))
    return x
