"""Compressed demonstrations (Wang et al. 2023, arXiv:2305.14160, section 4.2): keys and values of a few positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Base, Context, KeysValues, KVContext, Params, Project
from tunescope.methods.contexts.prefix import direct_shapes, paired
from tunescope.methods.contexts.text import token_ids

Positions = Literal["original", "packed", "zero"]

CITATION = """\
@inproceedings{wang2023anchors,
  author = {Wang, Lean and Li, Lei and Dai, Damai and Chen, Deli and Zhou, Hao and Meng, Fandong
    and Zhou, Jie and Sun, Xu},
  title = {Label Words are Anchors: An Information Flow Perspective for Understanding In-Context Learning},
  booktitle = {EMNLP},
  year = {2023},
  eprint = {2305.14160},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class Anchors(KVContext):
    """The model's own keys and values of a text of `length` tokens, at the positions `keep` alone. Nothing is trained.

    They are as one pass over the whole text made them, so a kept token has read those that are not kept; and they stand
    where they stood, so a sliding window sees what it would have seen of them. `compress`, of
    `tunescope.probes.anchors.compression`, makes them of demonstrations. Typed here, `text` is read by the bare model,
    and `length` says how many tokens it has, so that positions counted under another tokenizer are noticed.

    positions: where the text that follows begins. "original": behind the whole text. "packed": behind the last
    position kept. "zero": at 0, as the released code has it for GPT-2 XL, on top of where the kept keys stand.

    Tensors, for every attention module, such as decoder.0.self: "decoder.0.self.key" (kv_heads, kept, d_key), rotated
    where the model rotates, and "decoder.0.self.value" (kv_heads, kept, d_value).

    Raises UserError, once it meets a model, for one that is no decoder, for positions that are none, out of order or
    outside the text, and for a text that is missing or has not `length` tokens.

    Source: Wang et al. 2023, arXiv:2305.14160, section 4.2.
    """

    bound: ClassVar[bool] = True
    reads_base: ClassVar[bool] = False

    keep: tuple[int, ...] = ()
    length: int = 0
    positions: Positions = "original"
    text: str = ""

    def __str__(self) -> str:
        return f"Anchors({len(self.keep)} kept of {self.length}, positions={self.positions!r})"

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        check_causal(base.kind)
        if not self.keep and not self.text:
            raise UserError(
                "Anchors holds what is kept of demonstrations: make it with compress(model, tokenizer, spans, "
                "keep), or type text=..., its length=TOKENS and keep=POSITION,POSITION."
            )
        check_keep(self.keep, self.length)
        return direct_shapes(base.layers, len(self.keep))

    def init(self, base: Base) -> Params:
        self.shapes(base)
        if base.tokenizer is None or not self.text:
            raise UserError("Anchors needs text=... and the model's tokenizer, or compress(...) to make it.")
        ids = token_ids(base.tokenizer, self.text)
        if len(ids) != self.length:
            raise UserError(
                f"Anchors(length={self.length}): the text has {len(ids)} tokens, so `keep` was counted on another. "
                f"Count again, and type length={len(ids)}."
            )
        check_room(len(ids), base.positions)
        whole = base.keys_values(torch.tensor(ids))
        return at_positions(
            {
                f"{name}.{which}": pair[index]
                for name, pair in whole.items()
                for index, which in enumerate(("key", "value"))
            },
            self.keep,
        )

    def keys_values(self, p: Params, stack: str, project: Project) -> KeysValues:
        return paired(p, stack)

    def folded(self) -> Context:
        return replace(self, text="")

    def reach(self, n_keys: int) -> int:
        return {"original": self.length, "packed": self.keep[-1] + 1, "zero": 0}[self.positions]

    def standing(self, n_keys: int) -> Tensor:
        return torch.tensor(self.keep)


def at_positions(keys_values: Params, keep: Sequence[int]) -> Params:
    """ "decoder.0.self.key" (kv_heads, n, d) -> the same at the positions alone (kv_heads, kept, d)."""
    return {name: value[:, list(keep)].clone() for name, value in keys_values.items()}


def check_causal(kind: str) -> None:
    """UserError for what is no decoder."""
    if kind != "decoder":
        raise UserError(
            f"Demonstrations cannot be compressed in an {kind}: its keys look at the text that follows, so there is "
            "nothing to keep before it is known. Give them as text."
        )


def check_keep(keep: Sequence[int], length: int) -> None:
    """UserError for positions that are none, outside of the text, or not in ascending order."""
    if not keep:
        raise UserError("No position of the demonstrations is kept: name one at least, or attach nothing (zero-shot).")
    outside = [at for at in keep if not 0 <= at < length]
    if outside:
        raise UserError(
            f"Position {outside[0]} is outside of a text of {length} tokens: allowed are 0 to {length - 1}."
        )
    if list(keep) != sorted(set(keep)):
        raise UserError("The positions to keep are not in ascending order, each once: give sorted(set(positions)).")


def check_room(length: int, limit: int | None) -> None:
    """UserError for a text that is longer than the model."""
    if limit is not None and length > limit:
        raise UserError(
            f"The demonstrations have {length} tokens and the model takes {limit}: give fewer (--k) or shorter rows."
        )
