"""The model's own head: what stands behind it is stored without it, so artifacts remember which one it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, SiteDelta, Spec
from tunescope.models.fingerprint import hash_tensors, head_parameters, pooler_parameters

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def head_beneath(model: PreTrainedModel, artifacts: Sequence[Spec | Artifact]) -> str | None:
    """sha256 (hex) of the model's own head, where artifacts stand on it and do not hold it; else None.

    They do on one that makes no words (of a classifier's, a checkpoint may have none, and then it is drawn at random),
    and wherever they change it; not where one of them is a head. A pooler before such a head counts, for it may be
    drawn with it.
    """
    specs = [one.spec if isinstance(one, Artifact) else one for one in artifacts]
    if any(isinstance(spec, SiteDelta) and spec.sites == ("pooled",) for spec in specs):
        return None
    is_changed = any(isinstance(one, Artifact) and any(map(_is_of_head, one.tensors)) for one in artifacts)
    if has_own_head(model):
        return hash_tensors(head_parameters(model) | pooler_parameters(model))
    return hash_tensors(head_parameters(model)) if is_changed else None


def has_own_head(model: PreTrainedModel) -> bool:
    """Whether the model has a head of its own that makes no words: for classes, a number, or a span."""
    return model.get_output_embeddings() is None and bool(head_parameters(model))


def check_head(model: PreTrainedModel, artifacts: Sequence[Spec | Artifact]) -> None:
    """UserError for artifacts that were saved on another head than the model's own."""
    saved = [one for one in artifacts if isinstance(one, Artifact) and one.head is not None]
    own = head_beneath(model, artifacts) if saved else None
    for artifact in saved:
        if own is not None and artifact.head is not None and artifact.head != own:
            raise UserError(
                f"{artifact.spec} was saved on another head ({artifact.head[:12]}) than this {type(model).__name__} "
                f"has ({own[:12]}), and does not hold it: load the checkpoint that has that head. If it was drawn at "
                "random and never saved, it is lost: tune a ts.Head(n_labels=...) beside, which is stored. To tune on "
                "with this head, set artifact.head = None."
            )


def _is_of_head(name: str) -> bool:
    return name.startswith("head:")
