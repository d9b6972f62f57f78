"""Anchor re-weighting of demonstrations (Wang et al. 2023, "Label Words are Anchors", section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import AttentionDelta, Params

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
class Reweight(AttentionDelta):
    """How strongly the answer attends to each label word of the demonstrations in front: demos:k=1+reweight

    One scalar beta for every attention module, head and demonstration, from 0, where nothing changes; the tokens of
    one label word share it. It acts for queries from the input's last token on (output_start, as with an infix), in
    self attention of a decoder, in cross attention of an encoder-decoder.

    form: "scaled", as published: A(q, p) <- exp(beta) A(q, p) after the softmax, and nothing is renormalised. That is
        to multiply the label word's value vector by exp(beta): attention over all else stays as it is. It is the
        default, for the published numbers are its. "bias": beta is added to the score, and the softmax takes from all
        else what it gives to the word.
    anchors: `compare` fills them in from the demonstrations drawn; in Python they are
        `tunescope.tasks.prompts.spans.spans(tokenizer, demonstrations).anchors`.

    Tensors, for every attention module, such as decoder.0.self: "decoder.0.self.beta" (heads, label words).

    Raises UserError, once it meets a model, for no anchors, and for what are not positions, each once.

    Source: Wang et al. 2023, arXiv:2305.14160, section 4.1.
    """

    learning_rates: ClassVar[tuple[float, float, float]] = (0.01, 0.03, 0.1)  # published: Adam, 0.01 and 0.1

    anchors: tuple[str, ...] = ()
    form: Literal["scaled", "bias"] = "scaled"

    @property
    def changes(self) -> Literal["scores", "weights"]:
        return "weights" if self.form == "scaled" else "scores"

    def columns(self) -> tuple[int, ...]:
        return tuple(column for columns in self._words() for column in columns)

    def init(self, n_heads: int) -> Params:
        return {"beta": torch.zeros(n_heads, len(self._words()))}

    def apply(self, p: Params, attention: Tensor) -> Tensor:
        words = [word for word, columns in enumerate(self._words()) for _ in columns]
        beta = p["beta"][:, words][:, None]  # (heads, 1, columns)
        return attention * beta.exp() if self.form == "scaled" else attention + beta

    def rests(self, p: Params) -> bool:
        return not p["beta"].any()

    def _words(self) -> list[tuple[int, ...]]:
        """For each demonstration, the positions of its label word."""
        if not self.anchors:
            raise UserError(
                "Reweight has no demonstrations to act on: --arms demos:k=1+reweight puts some in front, or name the "
                "tokens of the label words in the text before it: text:text=...+reweight:anchors=7,15/16"
            )
        try:
            words = [tuple(map(_position, word.split("/"))) for word in self.anchors]
        except ValueError:
            words = []
        every = [position for word in words for position in word]
        if not words or len(set(every)) < len(every):
            raise UserError(
                f"Reweight(anchors={self.anchors!r}): positions of tokens, each once, counted from 0, a label word's "
                "own joined by /, as in anchors=7,15/16"
            )
        return words


def _position(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)
