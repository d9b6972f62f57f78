"""What goes out to a format and comes in from one: the artifacts to write, those read, and what an export came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tunescope.methods.artifact import Artifact


@dataclass(frozen=True)
class Outgoing:
    """Artifacts on their way out, in the form for inference: what only trains is folded away.

    model: with nothing attached. tokenizer: the model's, or None. about: what the artifact says of itself (task,
    template, score), as in `tunescope.json`; it may be empty.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    artifacts: tuple[Artifact, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Incoming:
    """The artifacts of a folder, and what its reader should know: what was changed, split or left out."""

    artifacts: list[Artifact]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Exported:
    """What was written.

    difference: between the attached model and what was written, read back; relative to the largest output. None where
    the form has nothing to compare. serves: where the files can be used.
    """

    path: Path
    difference: float | None
    serves: str
    notes: tuple[str, ...] = ()
