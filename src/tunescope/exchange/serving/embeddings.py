"""Token contexts as embeddings that the model's first layer sees, under the changes of weights beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.context_keys import embedder
from tunescope.attachment.merge import can_merge, merged_copy
from tunescope.exchange.outgoing import Outgoing
from tunescope.methods.artifact import Artifact, TokenContext
from tunescope.methods.contexts.anchors import Anchors
from tunescope.methods.contexts.text import Text
from tunescope.models.anatomy import anatomy
from tunescope.models.positions import first_position
from tunescope.tasks.prompts import templates

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def merged(given: Outgoing) -> Any:
    """The model with the changes of weights in a copy of it; the model itself where there are none."""
    changes = [artifact for artifact in given.artifacts if can_merge(artifact.spec)]
    return merged_copy(given.model, changes) if changes else given.model


def rows(given: Outgoing, model: PreTrainedModel) -> Tensor:
    """(n, width): the contexts one after the other, in the precision of the model's embeddings."""
    weight = anatomy(model).table.weight
    made = [
        artifact.spec.embeddings(artifact.tensors, embedder(model)).detach().to(weight)
        for artifact in given.artifacts
        if isinstance(artifact.spec, TokenContext)
    ]
    return torch.cat(made)


def start(given: Outgoing) -> tuple[int, ...]:
    """The special tokens between the contexts and a text."""
    return () if begins(given) else tuple(templates.edges(given.tokenizer)[0])


def begins(given: Outgoing) -> bool:
    """Whether a text among the contexts, or what is kept of one, has begun the sequence: no start token follows."""
    return any(isinstance(artifact.spec, Text | Anchors) for artifact in given.artifacts)


def line_notes(artifacts: Sequence[Artifact], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Told where a text's own ids begin with a space that they have not behind the context, whose words end a line."""
    words = [one.spec for one in artifacts if isinstance(one.spec, TokenContext | Anchors)]
    text = words[-1].text if words and isinstance(words[-1], Text | Anchors) else ""
    alone, behind = templates.ids(tokenizer, ["a"]), templates.ids_after(tokenizer, text, ["a"])
    if alone == behind:
        return []
    return [
        "this tokenizer puts a space in front of any text, which a text behind the context's last line does not have: "
        "send the text's ids as they are behind a line end"
    ]


def room(model: PreTrainedModel) -> int | None:
    """How many tokens the model takes in all; None where no limit is known."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if limit is None else limit - first_position(model)
