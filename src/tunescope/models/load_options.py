"""A model that takes less memory: its weights in fewer bits, or its layers on several devices."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.models.quantised import is_quantised
from tunescope.system.plugins import one_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

QUANTISED = ("8bit", "4bit")
LOADS = ("", "bfloat16", *QUANTISED)
DEVICE_MAPS = ("", "auto")


def check_loading(load: str, device_map: str) -> None:
    """UserError for a word that is not known, and for both where one makes the other idle."""
    for name, given, allowed in (("load", load, LOADS), ("device-map", device_map, DEVICE_MAPS)):
        if given:
            one_of(name, given, allowed[1:])
    if device_map and load in QUANTISED:
        raise UserError(
            "--device-map auto spreads a whole model, and --load makes it small enough for one device: give one."
        )


def loading(load: str, device_map: str, device: str) -> dict[str, Any]:
    """What `from_pretrained` is given for it, as keywords; nothing where nothing is asked.

    Raises UserError where what it needs is not installed.
    """
    given: dict[str, Any] = {}
    if load == "bfloat16":
        given |= {"dtype": load}
    elif load:
        given |= {"quantization_config": _quantised(load), "device_map": {"": device}}
    if device_map:
        _check_installed("accelerate", "--device-map")
        given |= {"device_map": device_map}
    return given


def _quantised(load: str) -> Any:
    """bitsandbytes where it is installed, else torchao."""
    _check_installed("accelerate", "--load")
    by: dict[str, Callable[[str], Any]] = {"bitsandbytes": _by_bitsandbytes, "torchao": _by_torchao}
    found = next((make for name, make in by.items() if find_spec(name) is not None), None)
    if found is None:
        raise UserError(f"--load {load} needs a library that is not installed. Type: pip install bitsandbytes")
    return found(load)


def _by_bitsandbytes(load: str) -> Any:
    import transformers

    if load == "8bit":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")  # QLoRA's type


def _by_torchao(load: str) -> Any:
    import transformers

    quantization = import_module("torchao.quantization")
    kind = quantization.Int8WeightOnlyConfig if load == "8bit" else quantization.Int4WeightOnlyConfig
    return transformers.TorchAoConfig(kind())


def _check_installed(name: str, option: str) -> None:
    if find_spec(name) is None:
        raise UserError(f"{option} needs {name}, which is not installed. Type: pip install {name}")


def is_placed(model: PreTrainedModel) -> bool:
    """Whether it stays where it was loaded: its layers are on several devices, or its weights in fewer bits."""
    return len(_places(model)) > 1 or any(map(is_quantised, model.parameters()))


def _places(model: PreTrainedModel) -> set[str]:
    return {str(place) for place in getattr(model, "hf_device_map", {}).values()}


def check_here(model: PreTrainedModel) -> None:
    """UserError for a model of which a part was put on the disk, or beside a GPU into memory: none of it is there."""
    places = _places(model)
    away = sorted(places & {"disk", "cpu"}) if len(places) > 1 else sorted(places & {"disk"})
    if away:
        raise UserError(
            f"a part of this model was put on {away[0]!r}, as --device-map auto does where devices have no room for "
            "all of it, and what is not on them cannot be trained through. Type: --load 4bit, or several --processes"
        )
