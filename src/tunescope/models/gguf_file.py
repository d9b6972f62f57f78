"""A model in a GGUF file, as llama.cpp has it: read by transformers, and computed with in float32."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.errors import Note, UserError
from tunescope.system.hub_name import parted

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SUFFIX = ".gguf"


def source(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What `from_pretrained` is given for a file: its folder, and keywords; a folder as it is, and none.

    A name on the hub is parted from the revision that stands behind it.

    given: further keywords that were asked for.

    Raises:
        UserError: the package that reads such files is not installed, or the weights are to be quantised anew.
    """
    path = Path(name)
    if path.suffix != SUFFIX or not path.is_file():
        found = parted(name)
        return found.name, {"revision": found.revision} if found.revision else {}
    if find_spec("gguf") is None:
        raise UserError(f"{name} is a GGUF file, which the package gguf reads. Type: pip install gguf")
    if "quantization_config" in given:
        raise UserError(f"{name} is quantised as it is, and --load would do so again: leave --load out.")
    return str(path.parent), {"gguf_file": path.name}


@contextmanager
def without_bar() -> Iterator[None]:
    """transformers' bar over a file's tensors, which heeds none of its switches, is one that does."""
    from transformers import modeling_gguf_pytorch_utils as reading
    from transformers.utils import logging

    bar, reading.tqdm = reading.tqdm, logging.tqdm
    try:
        yield
    finally:
        reading.tqdm = bar


def settled(name: str, model: PreTrainedModel) -> PreTrainedModel:
    """The model, whose weights are plain numbers by now, no longer called quantised; what they were is told."""
    model.is_quantized, model.hf_quantizer = False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    warnings.warn(
        Note(
            f"{Path(name).name} holds {held(name)}; it is computed with in {str(model.dtype).removeprefix('torch.')}."
        ),
        stacklevel=3,
    )
    return model


def held(name: str) -> str:
    """The types of its numbers, the commonest first: "90 % Q4_1, 10 % F32"."""
    from gguf import GGUFReader

    counts: Counter[str] = Counter()
    for tensor in GGUFReader(name).tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    return ", ".join(f"{count / counts.total():.0%} {kind}" for kind, count in counts.most_common())
