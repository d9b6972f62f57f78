"""A pretrained model and its tokenizer from a folder or the hub, whole and without running its code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.models import gguf_file
from tunescope.models.silence import quiet
from tunescope.system import shell
from tunescope.system.hub_name import parted

# what older versions of transformers saved beside the weights, and the pooler that a model of words does without
NO_WEIGHTS = re.compile(r"(^|\.)(position_ids|inv_freq|(attn|attention)\.(masked_)?bias)$|(^|\.)pooler\.")

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

TOKENIZER = re.compile(r"token|vocab|merges|spiece|\.(?:model|bpe|spm)$|tekken")  # in the names of its files


def load_model(name: str, *, in_words: bool = False, given: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """The model and tokenizer of a folder or hub id, by kind; code in the repository is never run.

    name: or a GGUF file; ORG/NAME@REVISION is a branch, a tag or a commit of the hub. in_words: an encoder comes with
    its masked-language-model head, which must be in the checkpoint. given: more of what `from_pretrained` takes.
    """
    from tunescope.models.anatomy import kind
    from tunescope.models.looks_back import check_looks_back

    if not name:
        raise UserError("The model's name is empty: give a folder, or a name on the Hugging Face hub.")
    _check_tokenizer(name)
    place, file = gguf_file.source(name, given or {})
    model, tokenizer, report = _read(name, place, file, in_words, given or {})
    is_encoder = kind(model.config) == "encoder"
    if getattr(model, "_hf_peft_config_loaded", False):
        raise UserError(
            f"{name} holds an adapter of peft (adapter_config.json), which transformers has put into the model. Give "
            "the base model's own folder or name; the adapter is read by: "
            f"tunescope import {shell.path(name)} --from peft --model BASE --out FOLDER"
        )
    _check_whole(name, model, report["missing_keys"], in_words and is_encoder)
    _check_all_used(name, model, report["unexpected_keys"], is_encoder)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # made up by transformers where there are no files
        raise UserError(_no_tokenizer(name))
    check_looks_back(name, model)
    return (gguf_file.settled(name, model) if "gguf_file" in file else model), tokenizer


def _read(
    name: str, place: str, file: Mapping[str, Any], in_words: bool, given: Mapping[str, Any]
) -> tuple[Any, Any, Mapping[str, Any]]:
    """The model, its tokenizer, and which of its weights were missing or not used; what fails is one UserError, but
    for memory that ends."""
    import torch
    import transformers

    try:
        bar = gguf_file.without_bar() if "gguf_file" in file else nullcontext()
        with quiet(warnings=not in_words), bar:  # what lacks for words is refused later, in one line
            config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=False, **file)
            _check_config(name, config)
            _check_reads_text(name, config)
            model, report = _class(config, in_words).from_pretrained(
                place,
                config=config,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **file,
                **({"dtype": "float32"} if "gguf_file" in file else {}) | dict(given),
            )
            tokenizer = _tokenizer(name, place, file)
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as problem:  # a checkpoint may be wrong in any way, and what reads it raises anything
        raise UserError(_cannot_load(name, problem)) from problem
    return model, tokenizer, report


def _class(config: PreTrainedConfig, in_words: bool) -> Any:
    import transformers

    from tunescope.models.anatomy import kind

    encoder = "AutoModelForMaskedLM" if in_words else "AutoModel"
    classes = {"decoder": "AutoModelForCausalLM", "encoder-decoder": "AutoModelForSeq2SeqLM", "encoder": encoder}
    return getattr(transformers, classes[kind(config)])


def on_paper(name: str) -> PreTrainedModel:
    """The model of a folder or hub id without its weights, on torch's device "meta": its shapes alone.

    Raises UserError where its config cannot be read.
    """
    import torch

    config = config_of(name)
    _check_config(name, config)
    with torch.device("meta"):
        found: PreTrainedModel = _class(config, False).from_config(config, trust_remote_code=False)
    return found.eval()


def load_tokenizer(name: str) -> Any:
    """The tokenizer alone. Raises UserError where there is none."""
    import transformers

    place, file = gguf_file.source(name, {})
    _check_tokenizer(name)
    try:
        return transformers.AutoTokenizer.from_pretrained(place, trust_remote_code=False, **file)
    except Exception as problem:  # as of a model
        raise UserError(_cannot_load(name, problem)) from problem


def config_of(name: str) -> Any:
    """The config of a folder or hub id alone. Raises UserError where there is none."""
    import transformers

    place, file = gguf_file.source(name, {})
    try:
        return transformers.AutoConfig.from_pretrained(place, trust_remote_code=False, **file)
    except Exception as problem:  # as of a model
        raise UserError(_cannot_load(name, problem)) from problem


def _check_tokenizer(name: str) -> None:
    """UserError for a model's folder without any file of a tokenizer; transformers may make up an empty one."""
    folder = Path(name)
    if (folder / "config.json").exists() and not any(map(TOKENIZER.search, os.listdir(folder))):
        _check_reads_text(name, config_of(name))
        raise UserError(_no_tokenizer(name))


def _check_reads_text(name: str, config: PreTrainedConfig) -> None:
    """UserError for a model of pictures or sound, by what transformers says that its class takes."""
    import transformers

    found = transformers.MODEL_MAPPING.get(type(config), None)
    takes = {getattr(one, "main_input_name", "input_ids") for one in (found if isinstance(found, tuple) else (found,))}
    if "input_ids" not in takes:
        what = f"{name} is a {config.model_type!r}, which reads {takes.pop()} and no text"
        raise UserError(f"{what}; only models of text are tuned here.")


def _no_tokenizer(name: str) -> str:
    return f"{name} has no tokenizer: save one there with tokenizer.save_pretrained({str(name)!r})."


def _check_config(name: str, config: PreTrainedConfig) -> None:
    """UserError for what transformers lets pass: more layers than tensors, of which a million take hours, for one."""
    from safetensors import safe_open

    named = config.architectures
    if not (named is None or (isinstance(named, list) and all(isinstance(one, str) for one in named))):
        raise UserError(f"{name}: its config.json says architectures {str(named)[:80]!r}, which is no list of names.")

    beyond = [key for key, value in config.to_dict().items() if isinstance(value, int) and abs(value) >= 2**63]
    if beyond:
        raise UserError(f"{name}: its config.json says a {beyond[0]} of 2^63 or more, which is no number of a model.")

    files = sorted(Path(name).glob("*.safetensors"))
    count = sum(len(list(safe_open(file, "pt").keys())) for file in files)  # type: ignore[no-untyped-call,misc]
    layers = getattr(config, "num_hidden_layers", None)
    if files and isinstance(layers, int) and layers > count:
        raise UserError(
            f"{name}: its config.json says {layers:,} layers, and it holds {count} tensors. Mend config.json."
        )


def _check_whole(name: str, model: PreTrainedModel, missing: Iterable[str], in_words: bool) -> None:
    """UserError for weights that the checkpoint lacks, and transformers makes up; of a pooler the model is rid."""
    if any("pooler" in key for key in missing):
        model.base_model.pooler = None
    missing = sorted(key for key in missing if "pooler" not in key)
    if not missing:
        return
    lacks = f"its checkpoint lacks {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
    if in_words:
        raise UserError(
            f"{name} has no masked-language-model head: {lacks}. Answers in words need a masked language model; "
            "in a comparison a new head answers too: --by head"
        )
    raise UserError(
        f"{name} is no whole {type(model).__name__}: {lacks}, which would be random. Give the whole model, with "
        "the head that it was pretrained with."
    )


def _check_all_used(name: str, model: PreTrainedModel, unexpected: Iterable[str], is_encoder: bool) -> None:
    """UserError for weights of the checkpoint that the model has no place for; an encoder's heads may be left off."""
    base = f"{model.base_model_prefix}."
    body = {part for part, _ in model.base_model.named_children()}
    left = sorted(key for key in unexpected if not NO_WEIGHTS.search(key))
    if is_encoder:
        left = [key for key in left if key.startswith(base) or key.partition(".")[0] in body]
    if left:
        raise UserError(
            f"{name} holds more than its config.json says: {left[0]}"
            + (f" and {len(left) - 1} more tensors have" if len(left) > 1 else " has")
            + f" no place in a {type(model).__name__}. Mend config.json, such as its number of layers."
        )


def _tokenizer(name: str, place: str, file: Mapping[str, Any]) -> Any:
    """UserError for a damaged one in the folder of a model that could be read; what else fails is as it was raised."""
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, trust_remote_code=False, **file)
        tokenizer("a")  # some faults of its files are met first where it is used
    except Exception as problem:  # files may be wrong in any way
        if not Path(name).is_dir() or "trust_remote_code" in str(problem) or _refused(name, problem):
            raise
        reason = (str(problem).strip().splitlines() or ["no reason given"])[0]
        raise UserError(
            f"the tokenizer in the folder {name} cannot be read ({type(problem).__name__}: {reason}). Save it there "
            "anew with tokenizer.save_pretrained."
        ) from problem
    return tokenizer


def _cannot_load(name: str, problem: Exception) -> str:
    """Why, and what to do."""
    if "trust_remote_code" in str(problem):
        return (
            f"{name} brings code of its own for its model or tokenizer (auto_map in its config), which is never run "
            "here, and transformers has no class for it. Give a model that transformers knows by itself."
        )
    if refused := _refused(name, problem):
        return refused
    if Path(name).suffix == gguf_file.SUFFIX and Path(name).is_file():
        reason = (str(problem).strip().splitlines() or ["no reason given"])[0]
        return f"{name} cannot be read as a GGUF file by transformers: {reason}"
    if Path(name).is_dir():
        has = sorted(os.listdir(name))[:8]
        reason = (str(problem).strip().splitlines() or ["no reason given"])[0]
        return (
            f"the folder {name} is not a transformers model with safetensors weights: {reason} "
            f"It holds: {', '.join(has) or 'nothing'}. Save one there with model.save_pretrained and "
            "tokenizer.save_pretrained."
        )
    if Path(name).is_absolute() or name.startswith("."):
        return f"there is no folder {name}; give the folder of a transformers model, or a name on the Hugging Face hub."
    reason = (str(problem).strip().splitlines() or ["no reason given"])[0]
    return f"model '{name}' cannot be loaded: {reason} Give a folder, or a name on the hub that this machine can reach."


def _refused(name: str, problem: BaseException | None) -> str:
    """That the hub does not give it to who asks, and what to type; "" where something else was in the way."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    while problem is not None and not isinstance(problem, HfHubHTTPError):
        problem = problem.__cause__ or problem.__context__
    code = problem.response.status_code if problem is not None else None
    if code not in (401, 403):
        return ""
    if isinstance(problem, GatedRepoError):
        page = f"https://huggingface.co/{parted(name).name}"
        return f"model '{name}' is gated: ask for access on its page, {page}, and then log in. Type: hf auth login"
    if isinstance(problem, RepositoryNotFoundError):
        missing = f"there is no model '{name}' on the hub, or it is private. Check the name"
        return f"{missing}; if it is yours, type: hf auth login"
    return f"the hub does not give model '{name}' to who asks ({code}). Who are you to it? Type: hf auth login"


def model_name(model: str) -> str:
    """A hub id as it is; of a folder its last part, since results hold no paths."""
    return Path(model).name if model.startswith((".", "/", "~")) or Path(model).exists() else model
