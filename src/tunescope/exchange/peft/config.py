"""peft's adapter_config.json: what of it is read, what is refused by name, and what a newer version put there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.exchange.foreign_files import read_json, read_tensors

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"

COMMON = {
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "revision",
    "task_type",
}
LORA = COMMON | {
    "alpha_pattern",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_bias",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "target_modules",
    "trainable_token_indices",
    "use_dora",
    "use_rslora",
}
IA3 = COMMON | {"exclude_modules", "fan_in_fan_out", "feedforward_modules", "init_ia3_weights", "target_modules"}
PROMPTS = COMMON | {
    "encoder_dropout",
    "encoder_hidden_size",
    "encoder_num_layers",
    "encoder_reparameterization_type",
    "init_weights",
    "num_attention_heads",
    "num_layers",
    "num_transformer_submodules",
    "num_virtual_tokens",
    "prefix_projection",
    "prompt_tuning_init",
    "prompt_tuning_init_text",
    "token_dim",
    "tokenizer_kwargs",
    "tokenizer_name_or_path",
}
CARTRIDGE = PROMPTS | {"num_frozen_tokens"}
REFUSED = {
    "alora_invocation_tokens": "aLoRA, which acts from certain tokens on",
    "arrow_config": "Arrow, a router of several LoRAs",
    "kasa_config": "KaSA, which changes the base weights",
    "layer_replication": "layers that stand in the model several times",
    "megatron_config": "Megatron's own layers",
    "monteclora_config": "MonteCLoRA",
    "target_parameters": "LoRA on parameters that are no linear maps",
    "use_bdlora": "block-diagonal LoRA",
    "use_qalora": "QA-LoRA",
    "velora_config": "VeLoRA",
}
NOTHING = type(None)
AGAIN = (r"\.modules_to_save(?=\.)", r"\.modules_to_save\.[^.]+(?=\.)", r"\.original_module(?=\.)")
TYPES = {
    "alpha_pattern": (dict, NOTHING),
    "bias": (str, NOTHING),
    "feedforward_modules": (list, str, NOTHING),
    "lora_bias": (bool, NOTHING),
    "lora_dropout": (int, float, NOTHING),
    "modules_to_save": (list, NOTHING),
    "rank_pattern": (dict, NOTHING),
    "target_modules": (list, str, NOTHING),
    "task_type": (str, NOTHING),
    "token_indices": (list, NOTHING),
    "trainable_token_indices": (list, dict, NOTHING),
    "use_dora": (bool, NOTHING),
}
HARMLESS_STARTS = (True, False, None, "gaussian", "eva", "orthogonal", "mica")  # the others change the base weights
KNOWN_STARTS = ("pissa", "olora")  # as a function of the base weights alone, so that it can be done again
TOKENS = COMMON | {"init_weights", "target_modules", "token_indices"}
KINDS = {
    "LORA": LORA,
    "IA3": IA3,
    "TRAINABLE_TOKENS": TOKENS,
    "PREFIX_TUNING": PROMPTS,
    "PROMPT_TUNING": PROMPTS,
    "P_TUNING": PROMPTS,
    "CARTRIDGE": CARTRIDGE,
}
MERGE = (
    "Merge it in peft (model.merge_and_unload().save_pretrained(OUT), where model = PeftModel.from_pretrained(BASE, "
    "FOLDER)) and use OUT as the base."
)

CONVERT = (
    "Save it as plain LoRA in peft: peft_model.save_pretrained(OUT, path_initial_model_for_weight_conversion=START), "
    "START being the adapter as it was saved before training, after peft_config.init_lora_weights = True."
)


def opened(folder: Path) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The configuration of a peft folder, its tensors, and what its reader should know.

    Raises:
        UserError: a file is missing, damaged or a pickle; the method, or a field that is set, has no place here.
    """
    config = read_json(folder / CONFIG)
    notes = checked(config)
    if not (folder / TENSORS).exists() and (folder / PICKLE).exists():
        raise UserError(
            f"{folder / PICKLE} is a pickle, which can run code and is not opened here. Convert it where you trust it: "
            "load it with peft and call save_pretrained(folder, safe_serialization=True)."
        )
    tensors = read_tensors(folder / TENSORS)
    return config, {key: value for key, value in tensors.items() if not _is_double(key, tensors)}, notes


def task(folder: Path) -> str | None:
    """The task that a folder's artifact was trained for, in peft's word; None where it says none."""
    found = read_json(folder / CONFIG).get("task_type")
    return found if isinstance(found, str) else None


def checked(config: dict[str, Any]) -> list[str]:
    """Notes on fields that are not known and at rest. Raises UserError for a method or a field that counts."""
    kind = config.get("peft_type")
    if not isinstance(kind, str) or kind not in KINDS:
        either = f"If it changes weights: {MERGE[0].lower()}{MERGE[1:]} Else keep it in peft."
        raise UserError(f"peft's {kind!r} has no place here; these have: {', '.join(KINDS)}. {either}")
    hint = MERGE if kind in ("LORA", "IA3", "TRAINABLE_TOKENS") else "Keep it in peft."
    for field in sorted(config.keys() & REFUSED.keys()):
        if not _rests(config[field]):
            raise UserError(f"{CONFIG}: {field}={config[field]!r} is {REFUSED[field]}, which has no place here. {hint}")
    for field, types in TYPES.items():
        if not isinstance(config.get(field), types):
            raise UserError(f"{CONFIG}: {field} is {config[field]!r}, which it cannot be: the file was altered.")
    if config.get("bias") not in (None, "none", "all", "lora_only"):
        raise UserError(f"{CONFIG}: bias is {config['bias']!r}, and none, all and lora_only are known here. {hint}")
    start = config.get("init_lora_weights", True)
    if start not in HARMLESS_STARTS + KNOWN_STARTS:
        again = MERGE if start == "loftq" else CONVERT
        raise UserError(
            f"{CONFIG}: init_lora_weights={start!r} changed the base weights before training by what is not in the "
            f"file, so this LoRA belongs to other weights. {again}"
        )
    if start in KNOWN_STARTS and config.get("use_dora"):
        raise UserError(f"{CONFIG}: init_lora_weights={start!r} under DoRA has no place here. {MERGE}")
    unknown = sorted(config.keys() - KINDS[kind] - REFUSED.keys())
    counting = {field: config[field] for field in unknown if not _rests(config[field])}
    if counting:
        shown = ", ".join(f"{field}={value!r}" for field, value in counting.items())
        version = config.get("peft_version") or "unknown"
        raise UserError(
            f"{CONFIG} has fields that this version does not know and that may count: {shown} (peft {version}). {hint}"
        )
    return [f"fields of another peft version, all at rest, were left out: {', '.join(unknown)}"] if unknown else []


def number(config: Mapping[str, Any], field: str) -> int:
    """A field that must be a positive whole number. Raises UserError where it is none."""
    value = config.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{CONFIG}: {field} is {value!r} and should be a positive whole number: the file was altered.")
    return value


def _is_double(key: str, tensors: Mapping[str, Any]) -> bool:
    """Whether a bias is there under its own name too: with bias="all" peft saves those of wrapped modules once more."""
    if not key.endswith(".bias"):
        return False
    return any(name in tensors for again in AGAIN if (name := re.sub(again, "", key, count=1)) != key)


def _rests(value: object) -> bool:
    return value in (None, False, "", "none") or value == [] or value == {}
