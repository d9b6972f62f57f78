"""peft's folders: LoRA, prefix tuning, prompt tuning and p-tuning in; LoRA, prefixes and soft prompts out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from tunescope import files
from tunescope.artifact import Artifact
from tunescope.contexts.prefix import Prefix
from tunescope.contexts.soft import Soft
from tunescope.deltas.lora import LoRA
from tunescope.errors import UserError
from tunescope.exchanging import peft_lora, peft_lora_out, peft_prompts
from tunescope.exchanging.outgoing import Incoming, Outgoing
from tunescope.exchanging.peft_config import CONFIG, TENSORS, opened
from tunescope.exchanging.peft_modules import TASKS
from tunescope.exchanging.sampling import difference, outputs
from tunescope.registry import name_of
from tunescope.sites import kind

ABOUT = "Hugging Face peft: LoRA, prefix tuning, prompt tuning; p-tuning to read"
SERVES = (
    "peft; LoRA also in vLLM (--enable-lora), SGLang (--lora-paths) and llama.cpp (convert_lora_to_gguf.py), for the "
    "model families that each of them has"
)
MERGED = "deltas that are changes of weights go into a merged checkpoint"
OWN = "keep tunescope's own folder (tunescope.save)"
READERS = {
    "LORA": peft_lora.read,
    "PREFIX_TUNING": peft_prompts.read_prefix,
    "PROMPT_TUNING": peft_prompts.read_prompt,
    "P_TUNING": peft_prompts.read_prompt,
}


def write(given: Outgoing, folder: Path) -> list[str]:
    """Writes adapter_config.json with the fields that any version knows, and the tensors; notes on what was changed.

    Raises:
        UserError: the artifacts are none of: LoRAs together, one prefix, soft prompts together.
    """
    fields, tensors, notes = _written(given)
    config = {
        "task_type": TASKS[kind(given.model)],
        "base_model_name_or_path": given.model.config.name_or_path or None,
        "inference_mode": True,
        **fields,
    }
    stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    files.write(folder / TENSORS, save(stored, metadata={"format": "pt"}))
    files.write(folder / CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
    return notes


def read(folder: Path, model: Any, tokenizer: Any) -> Incoming:
    """The artifacts of a folder that peft's save_pretrained wrote, and notes.

    Raises:
        UserError: what peft can and this cannot, by name; a pickle; a damaged, altered or foreign file.
    """
    config, tensors, notes = opened(folder)
    made, more = READERS[config["peft_type"]](config, tensors, model)
    return Incoming(made, [*notes, *more])


def check(given: Outgoing, folder: Path) -> float:
    """The difference of outputs of what was written, read again, and what is attached."""
    again = read(folder, given.model, given.tokenizer).artifacts
    return difference(outputs(given.model, again), outputs(given.model, given.artifacts))


def _written(given: Outgoing) -> tuple[dict[str, Any], Mapping[str, Tensor], list[str]]:
    artifacts, specs = list(given.artifacts), [artifact.spec for artifact in given.artifacts]
    if all(isinstance(spec, LoRA) for spec in specs):
        return peft_lora_out.write(artifacts, given.model)
    if all(isinstance(spec, Soft) for spec in specs):
        return peft_prompts.write_prompt(artifacts, given.model)
    if len(specs) == 1 and isinstance(specs[0], Prefix):
        return peft_prompts.write_prefix(artifacts[0], given.model)
    raise UserError(_refusal(artifacts))


def _refusal(artifacts: list[Artifact]) -> str:
    for artifact in artifacts:
        if not isinstance(artifact.spec, LoRA | Soft | Prefix):
            return f"peft has no {name_of(type(artifact.spec))} ({artifact.spec}): {MERGED}; else {OWN}."
    named = " + ".join(name_of(type(artifact.spec)) for artifact in artifacts)
    return f"One peft folder holds LoRAs, or one prefix, or soft prompts, and not {named}: {MERGED}; else {OWN}."
