"""Files that peft itself writes, on tiny models with random tensors, and what peft's model gives."""

import copy
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peft
import tiny
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tunescope.exchange.peft.config import CONFIG, TENSORS
from tunescope.models.anatomy import kind

TASKS = {"decoder": "CAUSAL_LM", "encoder-decoder": "SEQ_2_SEQ_LM", "encoder": "FEATURE_EXTRACTION"}


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def wrapped(model: Any, config: Any, *, seed: int = 5) -> Any:
    """peft's model around a copy, every trainable number drawn anew (lora_B and the like begin at zero)."""
    with quiet():
        made = peft.get_peft_model(copy.deepcopy(model), config).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    return made


def written(made: Any, folder: Path, **changes: Any) -> Path:
    """What its save_pretrained writes, with fields of the configuration changed afterwards."""
    with quiet():
        made.save_pretrained(folder)
    return configured(folder, **changes) if changes else folder


def configured(folder: Path, **changes: Any) -> Path:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))
    return folder


def retensored(folder: Path, change: Mapping[str, Tensor | None]) -> Path:
    """The folder with tensors put in, changed or (None) taken out."""
    tensors = load_file(folder / TENSORS) | change
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / TENSORS)
    return folder


def loaded(model: Any, folder: Path) -> Any:
    """peft's model around a copy, from files; prompts, which peft rounds to float32 on loading, in full."""
    with quiet():
        made = peft.PeftModel.from_pretrained(copy.deepcopy(model), folder).eval()
    whole = load_file(folder / TENSORS).get("prompt_embeddings")
    if whole is not None:
        weight = made.prompt_encoder["default"].embedding.weight
        torch.testing.assert_close(weight, whole.float(), rtol=0, atol=0)
        weight.data = whole
    return made


def outputs(made: Any, given: Mapping[str, Tensor]) -> Tensor:
    """Logits or last states, in float64 throughout where the model is, at the text's own positions."""
    with quiet(), torch.no_grad(), tiny.Float64():
        found = tiny.output(made, {name: value for name, value in given.items() if name != "position_ids"})
    width = given.get("decoder_input_ids", given["input_ids"]).shape[1]
    return found[:, -width:]


def assert_own_memory(artifacts: Any) -> None:
    """No two tensors share any: training one would change the other, and safetensors refuses them."""
    tensors = [value for artifact in artifacts for value in artifact.tensors.values()]
    assert len({value.untyped_storage().data_ptr() for value in tensors}) == len(tensors)
    assert all(value.is_contiguous() for value in tensors)


def lora(model: Any, **fields: Any) -> Any:
    return peft.LoraConfig(task_type=TASKS[kind(model)], **fields)


def prefix(model: Any, n: int = 3, **fields: Any) -> Any:
    return peft.PrefixTuningConfig(task_type=TASKS[kind(model)], num_virtual_tokens=n, **fields)


def prompt(model: Any, n: int = 3, **fields: Any) -> Any:
    return peft.PromptTuningConfig(task_type=TASKS[kind(model)], num_virtual_tokens=n, **fields)
