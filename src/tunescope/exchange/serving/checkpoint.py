"""A transformers checkpoint as a folder: weights, config, tokenizer, and what it was made of."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope import __version__
from tunescope.errors import UserError
from tunescope.exchange.outgoing import Outgoing
from tunescope.methods.text_form import name_of
from tunescope.models.fingerprint import fingerprint
from tunescope.models.load import model_name
from tunescope.models.silence import quiet
from tunescope.system import files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MANIFEST = "tunescope-export.json"
VERSION = 1


def write(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """The model's and the tokenizer's own files, readable as the umask says.

    Raises UserError where transformers does not save them.
    """
    try:
        with quiet():
            model.save_pretrained(folder)
            if tokenizer is not None:
                tokenizer.save_pretrained(folder)
    except ValueError as problem:  # an invalid generation config, for one
        first = str(problem).strip().splitlines()[0]
        raise UserError(f"transformers does not save this {type(model).__name__}: {first}") from problem
    for path in folder.rglob("*"):
        if path.is_file():
            os.chmod(path, 0o666 & ~files.umask())


def read(like: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The folder's model, in the class, precision and attention of another and where that is."""
    with quiet():
        made = type(like).from_pretrained(
            folder, dtype=like.dtype, attn_implementation=like.config._attn_implementation, use_safetensors=True
        )
    return made.to(like.device).eval()


def describe(given: Outgoing, form: str, folder: Path, **more: Any) -> None:
    """Write the manifest: the form, the base, the methods, and the sha256 of every file that is there."""
    made_of = [{"method": name_of(type(one.spec)), "fields": asdict(one.spec)} for one in given.artifacts]  # type: ignore[call-overload]
    config = given.model.config
    manifest = {
        "format": VERSION,
        "form": form,
        "tunescope": __version__,
        "base": {
            "name": model_name(config.name_or_path or ""),
            "fingerprint": fingerprint(given.model),
            "model_type": config.model_type,
        },
        "artifacts": made_of,
        "about": dict(given.about),
        **more,
        "sha256": {path.name: files.sha256(path) for path in sorted(folder.iterdir()) if path.is_file()},
    }
    files.write(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode())


def size(folder: Path) -> str:
    """Of all files together: "12 MB"."""
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:,.0f} MB"
