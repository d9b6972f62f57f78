"""Prefix-tuning (Li & Liang 2021, arXiv:2101.00190): trained keys and values in every layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Base, Context, Counted, KeysValues, KVContext, Params, Project
from tunescope.methods.contexts import _network
from tunescope.methods.contexts.text import check_read, last_ids, token_ids
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


WORDS = ("demos", "text", "tokens")  # starts that are words, at positions of their own


@dataclass(frozen=True)
class Prefix(KVContext):
    """`length` keys and values for every attention module: self, and both kinds of an encoder-decoder's.

    mlp: width of the network that makes them while training (Li & Liang, section 4.3), one for each of encoder self,
    decoder self and cross attention; folded away for inference. None trains them directly.
    init_from: None is "demos" in a comparison and "noise" elsewhere, which a pretrained model takes long to learn with:
    begin as "text" or "tokens" there. "demos" (the model's keys and values of solved examples, of which the last
    `length` tokens fit: in a comparison those that the seed draws from the training rows, elsewhere `text`), "text" (of
    the first tokens of `text`), "tokens" (of as many sampled tokens), "noise" (at the scale of the model's own keys and
    values; a network begins as torch's layers do) or "zero" (not with a network; its positions are alike, learn alike
    and act as one, however many they are). A network is first fitted to keys and values of words, which it comes near
    to, and no more.
    positions: "same" (the text keeps its positions) or "after" (it starts after the prefix; not in an encoder-decoder).
    None is "after" for a prefix that begins as words in a model with rotary positions, where it then is these words in
    front of the text (in reach of every window); and "same" for others: learned positions, further on, are other
    inputs. A prefix's own keys are turned by no rotation but that of the words that they began as, have no position
    bias, and are seen through every window.

    Tensors, for every attention module, such as decoder.0.self: "decoder.0.self.key" (kv_heads, length, d_key) and
    "decoder.0.self.value" (kv_heads, length, d_value); with a network those that make them, folded to these by `fold`.

    Raises UserError, once it meets a model, for a length below 1, `text` that is missing, too short or not read by its
    start, a network of no width, and options that do not go together or not with this kind of model.

    Source: Li & Liang 2021, arXiv:2101.00190, section 4.
    """

    size: ClassVar[str] = "length"
    shows_rows: ClassVar[bool] = True
    reads_base: ClassVar[bool] = False
    learning_rates: ClassVar[tuple[float, float, float]] = (1e-2, 5e-2, 2e-1)

    length: int = 10
    mlp: int | None = None
    init_from: Literal["demos", "text", "tokens", "noise", "zero"] | None = None
    text: str = ""
    positions: Literal["same", "after"] | None = None

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        if self.length < 1:
            raise UserError(f"Prefix(length={self.length}): a prefix has at least one position.")
        if self.positions == "after" and base.kind == "encoder-decoder":
            raise UserError(f"Prefix(positions='after') moves one text; this model is an {base.kind}.")
        if self.mlp is None:
            return direct_shapes(base.layers, self.length)
        return _network.shapes(base, self.length, self.mlp)

    def init(self, base: Base) -> Params:
        shapes, begin = self.shapes(base), self.init_from or "noise"
        check_read("Prefix", self.text, self.init_from, ("text", "demos"))
        if self.mlp is not None and begin == "zero":
            raise UserError(
                f"Prefix(mlp={self.mlp}) has a network, which makes no zeros; init_from='zero' needs mlp=None."
            )
        if self.mlp is not None and begin == "noise":
            return _network.begun(shapes)
        if begin == "zero":
            return {name: torch.zeros(shape) for name, shape in shapes.items()}
        own = base.keys_values(self._ids(base, begin))
        if begin == "noise":
            return {name: _pick(own, name).std() * torch.randn(shape) for name, shape in shapes.items()}
        words = {name: _pick(own, name).clone() for name in direct_shapes(base.layers, self.length)}
        return words if self.mlp is None else _network.fitted(_network.begun(shapes), words)

    def settled(self, base: Base) -> Context:
        is_words = self.positions is None and self.init_from in WORDS
        return replace(self, positions="after") if is_words and base.rotary else self

    @property
    def formula(self) -> Form:
        gated = "(1 - share[i]) * h[i] + share[i] * change[i]"  # share: its part of the attention, by query and head
        return Form("softmax(score(q[i], key[i])) @ value[i]", "parallel", "attn.heads", gated)

    @property
    def counted(self) -> Counted | None:
        return Counted("prefix", self.length) if self.mlp is None else None

    def keys_values(self, p: Params, stack: str, project: Project) -> KeysValues:
        return paired(self.fold(p), stack)

    def folded(self) -> Context:
        return replace(self, mlp=None, init_from=None, text="")

    def fold(self, p: Params) -> Params:
        return p if self.mlp is None else _network.output(p)

    def _ids(self, base: Base, begin: str) -> Tensor:
        if begin == "noise":
            return torch.randint(base.vocabulary, (sample_size(base),))
        if base.positions is not None and self.length > base.positions:
            raise UserError(
                f"Prefix(length={self.length}, init_from={begin!r}) needs the keys of {self.length} tokens; "
                f"the model has {base.positions} positions. Use init_from='noise', or a shorter prefix."
            )
        if begin == "tokens":
            return torch.randint(base.vocabulary, (self.length,))
        if base.tokenizer is None or not self.text:
            raise UserError(f"Prefix(init_from={begin!r}) needs text=... and the model's tokenizer.")
        if begin == "demos":
            return torch.tensor(last_ids(base.tokenizer, self.text, self.length))
        ids = token_ids(base.tokenizer, self.text)
        if len(ids) < self.length:
            raise UserError(f"Prefix(length={self.length}, init_from='text'): the text has only {len(ids)} tokens.")
        return torch.tensor(ids[: self.length])


def sample_size(base: Base) -> int:
    """How many sampled tokens the scale of a model's own keys and values is measured on."""
    return min(16, base.positions or 16)


def direct_shapes(layers: object, length: int) -> dict[str, tuple[int, ...]]:
    """One key and one value tensor for every attention module."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, layer in dict(layers).items():  # type: ignore[call-overload]
        shapes[f"{name}.key"] = (layer.kv_heads, length, layer.d_key)
        shapes[f"{name}.value"] = (layer.kv_heads, length, layer.d_value)
    return shapes


def paired(p: Params, stack: str) -> KeysValues:
    """ "decoder.0.self.key" and ".value" -> "decoder.0.self": (key, value), for one stack."""
    names = [name.removesuffix(".key") for name in p if name.startswith(f"{stack}.") and name.endswith(".key")]
    return {name: (p[f"{name}.key"], p[f"{name}.value"]) for name in names}


def _pick(own: KeysValues, name: str) -> Tensor:
    site, _, which = name.rpartition(".")
    key, value = own[site]
    return key if which == "key" else value
