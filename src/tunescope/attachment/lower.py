"""Contexts one step down the ladder: tokens and embeddings as keys and values of every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import reached, resting
from tunescope.attachment.context_keys import embedder, extras_of, in_force, run_tokens
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, Context, Params, Spec, TokenContext
from tunescope.methods.contexts.prefix import Prefix
from tunescope.models.anatomy import anatomy
from tunescope.models.fingerprint import fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def lower(
    model: PreTrainedModel, *artifacts: Spec | Artifact, tokenizer: PreTrainedTokenizerBase | None = None, seed: int = 0
) -> list[Artifact]:
    """The same artifacts with every token context replaced by its keys and values, for inference.

    Exact for decoders. What comes out is bound to these weights and these artifacts, and refused with others.

    model: with nothing attached. artifacts, tokenizer, seed: as `attach` takes them, in the order in which they stand.

    Raises UserError where it would not be exact (encoders, and the encoder side of an encoder-decoder, whose context
    keys look at the text), and as `attach`.
    """
    about = anatomy(model)
    if about.kind != "decoder":
        raise UserError(
            f"A token context cannot be lowered in an {about.kind}: its keys look at the text that follows. Attach it "
            "as it is, or use a prefix."
        )
    plain = torch.autocast(about.device.type, enabled=False)  # its keys are kept
    with attach(model, *artifacts, tokenizer=tokenizer, seed=seed) as tuned, torch.no_grad(), plain:
        ready = list(tuned.artifacts)
        with resting(model):  # one draw of its dropout would be kept for good
            for index, artifact in enumerate(ready):
                if isinstance(artifact.spec, TokenContext):
                    ready[index] = _lowered(model, ready, index)
    return ready


def _lowered(model: PreTrainedModel, artifacts: list[Artifact], index: int) -> Artifact:
    """The token context at `index` as a prefix at its positions, made behind the contexts that stand before it."""
    places = {found.name: found.module for found in reached(model)}
    before = [artifact for artifact in artifacts[:index] if isinstance(artifact.spec, Context)]
    extras, used = extras_of(model, before, "decoder", places)
    spec = artifacts[index].spec
    assert isinstance(spec, TokenContext)
    rows = spec.embeddings(artifacts[index].tensors, embedder(model))
    tensors: Params = {}
    for name, (key, value) in run_tokens(model, rows, used, extras, places).items():
        tensors |= {f"{name}.key": key, f"{name}.value": value}
    bound = in_force(model, artifacts, index)
    tokenizer = artifacts[index].tokenizer
    return Artifact(Prefix(length=len(rows), positions="after"), tensors, fingerprint(model), tokenizer, bound)
