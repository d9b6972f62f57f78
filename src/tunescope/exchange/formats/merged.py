"""A whole transformers checkpoint, the changes of weights added: what every server of the base model takes."""

from __future__ import annotations

from pathlib import Path

import torch

from tunescope.attachment.merge import merged_copy
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import changed_ids, difference, outputs
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import checkpoint
from tunescope.exchange.serving.refusals import check_only_changes

ABOUT = "a whole checkpoint with the change of weights added: LoRA, biases, full tuning, and several of them"
SERVES = "whatever serves the base model: transformers, vLLM, SGLang, TGI; llama.cpp once it is converted to GGUF"


def write(given: Outgoing, folder: Path) -> list[str]:
    """The base's files with the artifacts merged into a copy of it, the tokenizer's, and a manifest.

    Raises:
        UserError: an artifact is no change of weights, or the base is quantised.
    """
    check_only_changes(given, "merged")
    if getattr(given.model, "is_quantized", False):
        raise UserError(
            "--to merged adds to weights, and these are quantised: attach it to them, or tune it on the base as it was "
            "before that."
        )
    merged = merged_copy(given.model, given.artifacts)
    checkpoint.write(merged, given.tokenizer, folder)
    checkpoint.describe(given, "merged", folder)
    notes = [f"a full copy of the base, {checkpoint.size(folder)}; the artifact can no longer be taken off"]
    if given.model.dtype in (torch.bfloat16, torch.float16):
        kept = str(given.model.dtype).removeprefix("torch.")
        notes.append(f"the sum is rounded to {kept}, where the attached change is added to each output")
    if given.tokenizer is None:
        notes.append("no tokenizer was given, so none was written: copy the base's beside it")
    return notes


def check(given: Outgoing, folder: Path) -> float:
    """What the checkpoint, loaded by transformers, gives against the attached model."""
    also = changed_ids(given.model, given.artifacts)
    return difference(
        outputs(checkpoint.read(given.model, folder), also=also), outputs(given.model, given.artifacts, also)
    )
