"""peft's folders: LoRA and its kin, (IA)3, prefixes, prompts and heads in; LoRA, DoRA, prefixes, prompts, heads out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save
from torch import Tensor

from tunescope.attachment.merge import can_merge
from tunescope.attachment.own_head import has_own_head
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import changed_ids, difference, outputs
from tunescope.exchange.foreign_files import base_notes
from tunescope.exchange.outgoing import Incoming, Outgoing
from tunescope.exchange.peft import dense, heads, lora, lora_out, patches_out, prompts, prompts_out, whole
from tunescope.exchange.peft.config import CONFIG, TENSORS, opened, task
from tunescope.exchange.peft.modules import TASKS
from tunescope.exchange.peft.patches import Patches
from tunescope.exchange.serving.context_cache import ROUNDING
from tunescope.methods.artifact import Artifact, PatchDelta
from tunescope.methods.contexts.prefix import Prefix
from tunescope.methods.contexts.soft import Soft
from tunescope.methods.deltas.head import Head
from tunescope.methods.deltas.lora import LoRA
from tunescope.methods.text_form import name_of
from tunescope.models.anatomy import anatomy
from tunescope.models.fingerprint import head_parameters
from tunescope.system import files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ABOUT = "Hugging Face peft: LoRA, DoRA, prefix tuning, prompt tuning, heads; p-tuning and (IA)3 to read"
SERVES = (
    "peft; LoRA also in vLLM (--enable-lora), SGLang (--lora-paths) and llama.cpp (convert_lora_to_gguf.py), for the "
    "model families that each of them has"
)
OWN = "keep tunescope's own folder (tunescope.save)"
READERS = {
    "CARTRIDGE": prompts.read_prefix,
    "PREFIX_TUNING": prompts.read_prefix,
    "PROMPT_TUNING": prompts.read_prompt,
    "P_TUNING": prompts.read_prompt,
}


def write(given: Outgoing, folder: Path) -> list[str]:
    """Writes adapter_config.json with the fields that any version knows, and the tensors; notes on what was changed.

    Raises:
        UserError: the artifacts are none of: LoRAs together, one prefix, soft prompts together; a head beside them that
            no class of transformers has.
    """
    fields, tensors, notes = _written(given)
    config = {
        **_class(given.model, fields),
        "base_model_name_or_path": given.model.config.name_or_path or None,
        "inference_mode": True,
        **fields,
    }
    stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    files.write(folder / TENSORS, save(stored, metadata={"format": "pt"}))
    files.write(folder / CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
    notes += _left_out(given)
    if given.about.get("task"):
        notes.append("the task (template, label words) has no place in peft's files: it stays with the artifact")
    return notes


def _left_out(given: Outgoing) -> list[str]:
    """What to know where the model's own head makes the outputs and is not in the file."""
    written = {name for artifact in given.artifacts for name in artifact.tensors if name.startswith("head:")}
    is_in = head_parameters(given.model).keys() <= written or any(isinstance(a.spec, Head) for a in given.artifacts)
    if is_in or not has_own_head(given.model):
        return []
    return [
        f"the head of {type(given.model).__name__} is not in the file: it has to be in the base's checkpoint, for else "
        "another is drawn at random. Tuned beside LoRA, a ts.Head(n_labels=...) is written"
    ]


def _class(model: PreTrainedModel, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The task whose class of transformers has the names that are written, or the class itself where no task has it."""
    if "task_type" in fields:
        return {}
    if anatomy(model).kind == "decoder" and model.get_output_embeddings() is None:
        return {"task_type": "FEATURE_EXTRACTION"}  # it writes nothing, which peft's other classes want it to
    if anatomy(model).kind != "encoder" or model.base_model is model or fields["peft_type"] != "LORA":
        return {"task_type": TASKS[anatomy(model).kind]}
    own = type(model)
    return {"task_type": None, "auto_mapping": {"base_model_class": own.__name__, "parent_library": own.__module__}}


def model_for(folder: Path, model: PreTrainedModel) -> PreTrainedModel:
    """The model without its head over words, where the folder has a head for classes that takes its place."""
    is_headed = task(folder) in heads.TASKS
    return model.base_model if is_headed and anatomy(model).kind == "decoder" else model


def read(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Incoming:
    """The artifacts of a folder that peft's save_pretrained wrote, and notes.

    Raises:
        UserError: what peft can and this cannot, by name; a pickle; a damaged, altered or foreign file.
    """
    config, tensors, notes = opened(folder)
    notes += base_notes(config.get("base_model_name_or_path"), model, config.get("revision"))
    whole.check_there(config, tensors, model)
    own_heads, tensors, of_head = heads.split(config, tensors, model)
    if config["peft_type"] in READERS:
        made, more = READERS[config["peft_type"]](config, tensors, model)
    else:
        made, more = _of_weights(config, tensors, model)
    return Incoming([*made, *own_heads], [*notes, *more, *of_head])


def _of_weights(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], model: PreTrainedModel
) -> tuple[list[Artifact], list[str]]:
    """LoRA or (IA)3 with all that was trained beside it: changes of whole parameters first, then LoRA at its sites."""
    changes = Patches(model)
    rest, notes = whole.split(config, tensors, changes)
    made: list[Artifact] = []
    if config["peft_type"] == "IA3":
        notes += dense.add_ia3(config, rest, changes)
    elif config["peft_type"] == "LORA" or rest:
        plain = dense.split(config, rest, changes)
        if plain or changes.is_empty():
            made, more = lora.read(config, plain, changes)
            notes += more
    if n := changes.n_values():
        held = sum(value.numel() for value in tensors.values())
        notes.append(
            f"{n:,} values of changed parameters, for {held:,} in the file: to keep few, merge and save the model"
        )
    return [*changes.artifacts(headed=config.get("task_type") in heads.TASKS), *made], notes


def check(given: Outgoing, folder: Path) -> float:
    """The difference of outputs of what was written, read again, and what is attached."""
    again = read(folder, given.model, given.tokenizer).artifacts
    also = changed_ids(given.model, given.artifacts)
    return difference(outputs(given.model, again, also), outputs(given.model, given.artifacts, also))


def rounding(given: Outgoing) -> float:
    """How far outputs may be apart for rounding alone: where rotary keys are turned, whose angles are in float32."""
    turned = any(isinstance(one.spec, Prefix) and one.spec.positions != "after" for one in given.artifacts)
    return ROUNDING if turned else 0.0


def _written(given: Outgoing) -> tuple[dict[str, Any], Mapping[str, Tensor], list[str]]:
    own_heads = [artifact for artifact in given.artifacts if isinstance(artifact.spec, Head)]
    patched = [artifact for artifact in given.artifacts if isinstance(artifact.spec, PatchDelta)]
    rest = [artifact for artifact in given.artifacts if not isinstance(artifact.spec, Head | PatchDelta)]
    kinds = {type(artifact.spec) for artifact in rest}
    if (
        len(own_heads) > 1
        or (patched and kinds != {LoRA})
        or kinds not in ({LoRA}, {Prefix}, {Soft})
        or (kinds == {Prefix} and len(rest) > 1)
    ):
        raise UserError(_refusal(given.artifacts))
    if kinds == {Soft}:
        if own_heads:
            raise UserError(f"peft's head behind a soft prompt reads the prompt and not the text: {OWN}.")
        return prompts_out.write_prompt(rest, given.model)
    if kinds == {Prefix}:
        fields, tensors, notes = prompts_out.write_prefix(rest[0], given.model)
    else:
        fields, tensors, notes = lora_out.write(rest, given.model, headed=bool(own_heads))
        if patched:
            more, its, of_them = patches_out.write(patched, given.model, tensors, headed=bool(own_heads))
            fields, tensors, notes = fields | more, {**tensors, **its}, notes + of_them
    for head in own_heads:
        prefix = "base_model" if kinds == {Prefix} else "base_model.model"
        more, its, auto = heads.write(head, prefix, given.model)
        saved = [*fields.get("modules_to_save", []), *more["modules_to_save"]]
        fields, tensors = fields | more | {"modules_to_save": saved}, {**tensors, **its}
        notes.append(f"for {auto}, whose classifier is in the file")
    return fields, tensors, notes


def _refusal(artifacts: Sequence[Artifact]) -> str:
    for artifact in artifacts:
        if not isinstance(artifact.spec, LoRA | Soft | Prefix | Head):
            end = "merge it into the weights (tunescope.merge) and save the model" if can_merge(artifact.spec) else OWN
            return f"peft has no {name_of(type(artifact.spec))} ({artifact.spec}): {end}."
    named = " + ".join(name_of(type(artifact.spec)) for artifact in artifacts)
    return f"One peft folder holds LoRAs, or one prefix, or soft prompts, and not {named}: {OWN}."
