"""What the `adapters` library wrote (make_adapters_fixtures.py): base models, folders, inputs, and its outputs."""

import json
import shutil
from pathlib import Path
from typing import Any

import tiny
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from torch import Tensor

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.adapters.config import CONFIG, TENSORS

HERE = Path(__file__).parent / "adapters_fixtures"
FAMILIES = sorted(path.name for path in HERE.iterdir())
AUTO = {
    "bart": tf.AutoModelForSeq2SeqLM,
    "bert": tf.AutoModelForMaskedLM,
    "distilbert": tf.AutoModel,
    "gpt2": tf.AutoModelForCausalLM,
    "llama": tf.AutoModelForCausalLM,
    "roberta": tf.AutoModel,
    "t5": tf.AutoModelForSeq2SeqLM,
}


def stored(family: str) -> dict[str, Tensor]:
    """Inputs by their names, and the library's outputs by case and "bare"."""
    return load_file(HERE / family / "outputs.safetensors")


def folders() -> list[tuple[str, str]]:
    """Family and case of every folder that the library wrote."""
    return [(family, path.name) for family in FAMILIES for path in sorted((HERE / family).iterdir()) if path.is_dir()]


def compared() -> list[tuple[str, str]]:
    """Those of which the library's outputs are here."""
    return [(family, case) for family, case in folders() if case in stored(family)]


def model(family: str, dtype: torch.dtype = torch.float64) -> Any:
    return AUTO[family].from_pretrained(HERE / family, dtype=dtype).eval()


def inputs(family: str) -> dict[str, Tensor]:
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    return {name: value for name, value in stored(family).items() if name in names}


def outputs(model: Any, given: dict[str, Tensor], artifacts: Any = ()) -> Tensor:
    """At the text's real tokens, or all of an encoder-decoder's."""
    with torch.no_grad():
        if not artifacts:
            return tiny.real(given, tiny.output(model, given))
        with ts.attach(model, *artifacts):
            return tiny.real(given, tiny.output(model, given))


def read(family: str, folder: Path, dtype: torch.dtype = torch.float64) -> Any:
    return convert.read(folder, form="adapters", model=model(family, dtype))


def copied(family: str, case: str, to: Path) -> Path:
    """A copy to be altered."""
    return Path(shutil.copytree(HERE / family / case, to / case))


def configured(folder: Path, **changes: Any) -> Path:
    """The folder with fields of the adapter's own configuration changed."""
    whole = json.loads((folder / CONFIG).read_text())
    whole["config"] |= changes
    (folder / CONFIG).write_text(json.dumps(whole))
    return folder


def headed(folder: Path, **changes: Any) -> Path:
    """The folder with fields around that configuration changed."""
    whole = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(whole | changes))
    return folder


def renamed(folder: Path, old: str, new: str) -> Path:
    """The folder with tensors whose names begin otherwise."""
    tensors = load_file(folder / TENSORS)
    save_file(
        {key.replace(old, new, 1) if key.startswith(old) else key: v for key, v in tensors.items()}, folder / TENSORS
    )
    return folder


def retensored(folder: Path, change: dict[str, Tensor | None]) -> Path:
    """The folder with tensors put in, changed or (None) taken out."""
    tensors = load_file(folder / TENSORS) | change
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / TENSORS)
    return folder
