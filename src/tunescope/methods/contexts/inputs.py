"""A prefix of layer inputs (Petrov et al. 2024, arXiv:2310.19698, sections 2 and 5): vectors that the layer's own
frozen maps turn into keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tunescope.errors import UserError
from tunescope.methods.artifact import Base, KeysValues, KVContext, Params, Project
from tunescope.methods.form import Form

CITATION = """\
@inproceedings{petrov2024when,
  author = {Petrov, Aleksandar and Torr, Philip H. S. and Bibi, Adel},
  title = {When Do Prompting and Prefix-Tuning Work? {A} Theory of Capabilities and Limitations},
  booktitle = {ICLR},
  year = {2024},
  eprint = {2310.19698},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class Inputs(KVContext):
    """`length` vectors s for every attention module, attended to as W_K s and W_V s.

    Half the parameters of a `prefix` of that length where keys are as wide as the model, and more where keys are
    grouped (Llama). A prefix trains keys and values freely, so nothing here is beyond it. The vectors enter after the
    layer's norm, at no position: no rotation, no position bias, no norm of keys. A delta on W_K or W_V acts on them as
    on the text. Drawn from N(0, 1) like the paper's, whose vectors also pass the layer's norm unless it is skipped.
    Here any norm is possible, so what no vectors can do here none can there; how well either trains is another matter.

    Tensors, for every attention module, such as decoder.0.self: "decoder.0.self.inputs" (length, width of what the
    module makes its keys and values from).

    Raises UserError, once it meets a model, for a length below 1.

    Source: Petrov et al. 2024, arXiv:2310.19698, sections 2 and 5.
    """

    size: ClassVar[str] = "length"
    learning_rates: ClassVar[tuple[float, float, float]] = (1e-2, 5e-2, 2e-1)

    length: int = 10

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        if self.length < 1:
            raise UserError(f"Inputs(length={self.length}): a prefix has at least one position.")
        return {f"{name}.inputs": (self.length, base.input_width(name)) for name in base.layers}

    def init(self, base: Base) -> Params:
        return {name: torch.randn(shape) for name, shape in self.shapes(base).items()}

    @property
    def formula(self) -> Form:
        gated = "(1 - share[i]) * h[i] + share[i] * change[i]"  # share: its part of the attention, by query and head
        return Form("softmax(score(q[i], key[i])) @ value[i]", "parallel", "attn.heads", gated)

    def keys_values(self, p: Params, stack: str, project: Project) -> KeysValues:
        names = [name.removesuffix(".inputs") for name in p if name.startswith(f"{stack}.")]
        return {name: project(name, p[f"{name}.inputs"]) for name in names}
