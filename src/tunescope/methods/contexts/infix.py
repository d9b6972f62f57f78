"""Infix-tuning (Li & Liang 2021, section 7.3): trained keys and values between the input and the output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from tunescope.errors import UserError
from tunescope.methods.artifact import Base, Context, KeysValues, KVContext, Params, Project
from tunescope.methods.contexts import _network
from tunescope.methods.contexts.prefix import direct_shapes, paired, sample_size
from tunescope.methods.form import Form

CITATION = """\
@inproceedings{li2021prefix,
  author = {Li, Xiang Lisa and Liang, Percy},
  title = {Prefix-Tuning: Optimizing Continuous Prompts for Generation},
  booktitle = {ACL},
  year = {2021},
  eprint = {2101.00190},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class Infix(KVContext):
    """`length` keys and values for every layer of a decoder, seen only by what follows the input.

    They are seen by the input's last token, which predicts the first token of the output, and by all after it. Pass
    output_start=(batch,), the index of that token in each padded row, to every call of the model; without it, the text
    of the first call is input, each row's to its last real token, and that of calls with its cache output. Training
    without it is refused, and so is the loss over a text, which leaves out the last token's logit, where no other token
    sees the infix.
    `generate` tells it by itself. The text keeps its positions. Initialised with noise at the scale of the model's own
    keys and values, or by a network.

    mlp: width of the network that makes them while training, as of `Prefix`; folded away for inference.

    Tensors, for every attention module, such as decoder.0.self: "decoder.0.self.key" (kv_heads, length, d_key) and
    "decoder.0.self.value" (kv_heads, length, d_value); with a network those that make them, folded to these by `fold`.

    Raises UserError, once it meets a model, for a length or a network's width below 1, and for a model that is no
    decoder.

    Source: Li & Liang 2021, arXiv:2101.00190, section 7.3.
    """

    size: ClassVar[str] = "length"
    learning_rates: ClassVar[tuple[float, float, float]] = (1e-2, 5e-2, 2e-1)
    infix: ClassVar[bool] = True
    reads_base: ClassVar[bool] = False

    length: int = 10
    mlp: int | None = None

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        if base.kind != "decoder":
            raise UserError(f"Infix stands between input and output of a decoder; this model is an {base.kind}.")
        if self.length < 1:
            raise UserError(f"Infix(length={self.length}): an infix has at least one position.")
        if self.mlp is not None:
            return _network.shapes(base, self.length, self.mlp)
        return direct_shapes(base.layers, self.length)

    def init(self, base: Base) -> Params:
        if self.mlp is not None:
            return _network.begun(self.shapes(base))
        own = base.keys_values(torch.randint(base.vocabulary, (sample_size(base),)))
        scales = {
            f"{site}.{which}": pair[i].std() for site, pair in own.items() for i, which in enumerate(("key", "value"))
        }
        return {name: scales[name] * torch.randn(shape) for name, shape in self.shapes(base).items()}

    @property
    def formula(self) -> Form:
        gated = "(1 - share[i]) * h[i] + share[i] * change[i]"  # share: its part of the attention, by query and head
        return Form(
            "softmax(score(q[i], key[i])) @ value[i]", "parallel", "attn.heads, from the input's last token on", gated
        )

    def keys_values(self, p: Params, stack: str, project: Project) -> KeysValues:
        return paired(self.fold(p), stack)

    def folded(self) -> Context:
        return replace(self, mlp=None)

    def fold(self, p: Params) -> Params:
        return p if self.mlp is None else _network.output(p)
