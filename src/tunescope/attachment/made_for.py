"""Which weights and which tokenizer an artifact was made for."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tunescope.errors import Note, UserError
from tunescope.methods.artifact import Artifact
from tunescope.models.fingerprint import fingerprint, float16_fingerprint, is_float16

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def check_base(model: PreTrainedModel, artifact: Artifact, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
    """UserError for an artifact made for other weights than the model's, or with another tokenizer.

    Of weights in float16, which are rounded otherwise than those of a fingerprint, a note that they cannot be told.
    """
    if artifact.base is not None and artifact.base != fingerprint(model):
        _check_rounded(model, artifact)
    if artifact.tokenizer is not None and tokenizer is not None and artifact.tokenizer != tokenizer_hash(tokenizer):
        raise UserError(f"{artifact.spec} was made with another tokenizer (other vocabulary): load that one.")


def _check_rounded(model: PreTrainedModel, artifact: Artifact) -> None:
    """That an artifact's weights are the model's, one of the two in float16."""
    if is_float16(model):
        told = "the weights are in float16, in which it cannot be told whether they are those that it was tuned on"
        warnings.warn(Note(f"{artifact.spec}: {told}; in bfloat16 or float32 it can."), stacklevel=3)
    elif artifact.base != float16_fingerprint(model):
        way = "; if it was in float16, in that or in float32" if model.dtype == torch.bfloat16 else ""
        raise UserError(
            f"{artifact.spec} was made for another base model (weights {str(artifact.base)[:12]}, these are "
            f"{fingerprint(model)[:12]}): load the model it was tuned on{way}."
        )


def check_family(artifact: Artifact, made_for: str, is_of: str) -> None:
    """UserError for an artifact of another family than the model's, where no weights can be compared."""
    if made_for != is_of:
        raise UserError(
            f"{artifact.spec} was made for another base model (a {made_for}, this is a {is_of}): load the model it was "
            "tuned on."
        )


def known_tokenizer(artifacts: Sequence[Artifact]) -> str | None:
    """The tokenizer that artifacts know, as its hash; UserError where they know two."""
    known = {artifact.tokenizer for artifact in artifacts} - {None}
    if len(known) > 1:
        raise UserError("These artifacts were made with different tokenizers, and a folder names one: save them apart.")
    return next(iter(known), None)


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 (hex) of the vocabulary, token by token."""
    listed = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False)
    return hashlib.sha256(listed.encode()).hexdigest()
