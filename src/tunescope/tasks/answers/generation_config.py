"""A model's own settings of `generate`, put away while others count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel


@contextmanager
def only(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """Inside, the checkpoint's own settings are away: `generate` fills from them whatever is not given."""
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own
