"""A soft prompt (Lester et al. 2021, arXiv:2104.08691): trained embeddings in front of the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Base, Context, Counted, Params, TokenContext
from tunescope.methods.contexts.text import check_read, last_ids, token_ids
from tunescope.methods.form import Form

CITATION = """\
@inproceedings{lester2021power,
  author = {Lester, Brian and Al-Rfou, Rami and Constant, Noah},
  title = {The Power of Scale for Parameter-Efficient Prompt Tuning},
  booktitle = {EMNLP},
  year = {2021},
  eprint = {2104.08691},
  archivePrefix = {arXiv},
}
"""


COMMON = 5000  # the vocabulary's first ids, which are its most frequent tokens (Lester et al., section 3.1)


@dataclass(frozen=True)
class Soft(TokenContext):
    """`length` embeddings, trained; they stand at positions of their own and the text follows.

    init_from: None is "demos" in a comparison and "vocabulary" elsewhere. "demos" (embeddings of solved examples, of
    which the last `length` tokens fit: in a comparison those that the seed draws from the training rows, elsewhere
    `text`), "vocabulary" (embeddings of different tokens sampled among the 5,000 most common; with the tokenizer at
    hand none of them is a special one), "normal" (at the scale of the embedding table), "uniform" (in [-.5, .5], as
    the paper has it; its code draws from [0, .5)), "labels" (of the label words in `text`, separated by "/": one row
    each, its tokens averaged; then sampled vocabulary) or "text" (of the tokens of `text`, cut or repeated to the
    length).

    Tensors: "embeddings" (length, width of a token's embedding), at the scale that the model's first layer sees.

    Raises UserError, once it meets a model, for a length below 1, and for `text` that is missing, without tokens, or
    not read by its start.

    Source: Lester et al. 2021, arXiv:2104.08691, section 2.
    """

    size: ClassVar[str] = "length"
    shows_rows: ClassVar[bool] = True
    learning_rates: ClassVar[tuple[float, float, float]] = (3e-3, 3e-2, 1e-1)
    served_as: ClassVar[str] = "soft_token"

    length: int = 20
    init_from: Literal["demos", "vocabulary", "normal", "uniform", "labels", "text"] | None = None
    text: str = ""

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        if self.length < 1:
            raise UserError(f"Soft(length={self.length}): a soft prompt has at least one token.")
        return {"embeddings": (self.length, base.width)}

    def init(self, base: Base) -> Params:
        (shape,) = self.shapes(base).values()
        check_read("Soft", self.text, self.init_from, ("text", "demos", "labels"))
        common = self._common(base)
        if self.init_from == "normal":
            sample = base.embed(torch.randint(base.vocabulary, (1000,)))
            return {"embeddings": sample.std() * torch.randn(shape, dtype=sample.dtype)}
        if self.init_from == "uniform":
            return {"embeddings": torch.rand(shape, dtype=base.embed(common).dtype) - 0.5}
        if self.init_from in (None, "vocabulary"):
            return {"embeddings": base.embed(common)}
        if base.tokenizer is None or not self.text.strip():
            raise UserError(f"Soft(init_from={self.init_from!r}) needs text=... and the model's tokenizer.")
        if self.init_from == "demos":
            return {"embeddings": base.embed(torch.tensor(last_ids(base.tokenizer, self.text, self.length)))}
        if self.init_from == "text":
            ids = torch.tensor(token_ids(base.tokenizer, self.text))
            return {"embeddings": base.embed(ids.repeat(-(-self.length // len(ids)))[: self.length])}
        words = [base.tokenizer(word, add_special_tokens=False)["input_ids"] for word in self.text.split("/")]
        if not all(words):
            raise UserError(f"Soft(init_from='labels', text={self.text!r}): a word between the '/' has no tokens.")
        rows = [base.embed(torch.tensor(ids)).mean(0) for ids in words][: self.length]
        return {"embeddings": torch.cat([torch.stack(rows), base.embed(common)[len(rows) :]])}

    def _common(self, base: Base) -> Tensor:
        """(length,) ids, none twice while there are enough of them."""
        special = set() if base.tokenizer is None else set(base.tokenizer.all_special_ids)
        ids = torch.tensor([one for one in range(min(COMMON, base.vocabulary)) if one not in special])
        return ids[torch.randperm(len(ids))].repeat(-(-self.length // len(ids)))[: self.length]

    @property
    def formula(self) -> Form:
        return Form("embeddings", "in front", "embeddings", "join(change, text)")

    @property
    def counted(self) -> Counted:
        return Counted("soft", self.length)

    def folded(self) -> Context:
        return replace(self, init_from=None, text="")

    def embeddings(self, p: Params, embed: Callable[[Tensor], Tensor]) -> Tensor:
        return p["embeddings"]
