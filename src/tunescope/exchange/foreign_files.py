"""Files that another library wrote, read so that each fault is one line; nothing in them is ever run."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def base_notes(named: object, model: PreTrainedModel, revision: object = None) -> list[str]:
    """What to know where a configuration names another base than this model, or one revision of it.

    named, revision: as the configuration has them. A folder and a hub's id are told apart by their last parts alone.
    """
    own = _last_part(str(model.config.name_or_path or ""))
    known = (None, "", "main", getattr(model.config, "_commit_hash", None))
    at = "" if revision in known else f" at revision {revision!r}"
    if isinstance(named, str) and named and own and _last_part(named) != own:
        return [f"its configuration names {named!r}{at}; this model is {own!r}"]
    return [f"its configuration names its base{at}: whether this model is that is not known"] if at else []


def _last_part(name: str) -> str:
    """Of a folder or a hub's id; of a snapshot in the hub's cache that of the id that it is of."""
    path = PurePath(name)
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2]
    return path.name


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        UserError: it is not there, no JSON, or no object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        asked = "it is not what was asked for" if path.parent.exists() else "there is no such folder"
        raise UserError(f"{path.parent} has no {path.name}: {asked}. {_holds(path)}") from None
    except (ValueError, OSError, RecursionError):
        raise UserError(f"{path} is not readable as JSON: it is damaged. Copy it again.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} does not hold a JSON object: it is damaged, or another file.")
    return value


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, all of them of floating point, all numbers finite.

    Raises:
        UserError: it is not there, cut short or no safetensors file, or holds other things than finite numbers.
    """
    try:
        found: dict[str, Tensor] = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path.parent} has no {path.name}. {_holds(path)}") from None
    except (SafetensorError, OSError) as problem:
        raise UserError(f"{path} cannot be read ({problem}): it is cut short or damaged. Copy it again.") from None
    for name, value in found.items():
        if value.dtype not in DTYPES:
            held = ", ".join(str(one).removeprefix("torch.") for one in DTYPES)
            raise UserError(f"{path}: {name!r} is of {value.dtype}, and what is read here is of {held}.")
        if not bool(value.isfinite().all()):
            raise UserError(f"{path}: {name!r} holds numbers that are not finite: it is damaged, or training diverged.")
    return found


def _holds(path: Path) -> str:
    has = sorted(one.name for one in path.parent.iterdir())[:8] if path.parent.is_dir() else []
    if not path.parent.exists():
        return "Check the path."
    return f"It holds: {', '.join(has) or 'nothing'}."
