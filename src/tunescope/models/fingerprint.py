"""Which weights are in force: a hash of a model's parameters, kept while they are the same."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.models.quantised import readable
from tunescope.models.split import reshard

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ORIGINALS = "_tunescope_originals"  # on the base model, while a delta stands in for its parameters

REGISTERED = "tunescope"  # the submodule of a model that holds what is being tuned, while it is registered

GLANCED = 256  # values of a tensor that are looked at to see whether it is still the one that was hashed

_FINGERPRINTS: weakref.WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], str]] = weakref.WeakKeyDictionary()


def fingerprint(model: PreTrainedModel) -> str:
    """sha256 (hex) of the base weights by name and shape, rounded to bfloat16; heads and poolers do not count.

    The same checkpoint loaded in float32 or in bfloat16 has the same fingerprint; in float16 or quantised it has
    another. It is a guard against mix-ups, not against an adversary: weights that agree to three digits are taken for
    the same.
    """
    base, own = model.base_model, _own(model)
    versions = tuple(_glance(value) for value in own.values())
    known = _FINGERPRINTS.get(base)
    if known is not None and known[0] == versions:
        return known[1]
    digest = hash_tensors(own)
    _FINGERPRINTS[base] = (versions, digest)
    return digest


def float16_fingerprint(model: PreTrainedModel) -> str:
    """What `fingerprint` is of these weights loaded in float16, which rounds them otherwise than bfloat16."""
    own = {name: value for name, value in _own(model).items() if value.is_floating_point()}
    return hash_tensors({**_own(model), **{name: readable(value).to(torch.float16) for name, value in own.items()}})


def is_float16(model: PreTrainedModel) -> bool:
    """Whether weights of the base are of float16."""
    return any(value.dtype == torch.float16 for value in _own(model).values())


def _own(model: PreTrainedModel) -> dict[str, Tensor]:
    """The base's parameters that count, as they are with nothing attached."""
    reshard(model)
    own = dict(model.base_model.named_parameters()) | getattr(model.base_model, ORIGINALS, {})
    apart = ("head:", f"{REGISTERED}.")
    return {name: value for name, value in own.items() if "pooler" not in name and not name.startswith(apart)}


def head_parameters(model: PreTrainedModel) -> dict[str, Tensor]:
    """ "head:classifier.weight" -> the model's own parameters around its base, as they are with nothing attached."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    reshard(model)
    inside = {id(value) for value in model.base_model.parameters()}
    own = {f"head:{name}": value for name, value in model.named_parameters() if id(value) not in inside}
    own = {name: value for name, value in own.items() if not name.startswith(f"head:{REGISTERED}.")}
    return own | {name: value for name, value in getattr(model.base_model, ORIGINALS, {}).items() if name in own}


def pooler_parameters(model: PreTrainedModel) -> dict[str, Tensor]:
    """ "pooler.dense.weight" -> the parameters of the base's pooler, as they are with nothing attached."""
    base = getattr(model, "_orig_mod", model).base_model  # of torch.compile
    reshard(model)
    own = dict(base.named_parameters()) | getattr(base, ORIGINALS, {})
    return {name: value for name, value in own.items() if name.startswith("pooler.")}


@contextmanager
def carried(model: PreTrainedModel) -> Iterator[None]:
    """Within it the same weights come into other tensors, and afterwards have the fingerprint that they had."""
    digest = fingerprint(model)
    yield
    own = dict(model.base_model.named_parameters())
    own = {name: value for name, value in own.items() if "pooler" not in name}
    _FINGERPRINTS[model.base_model] = (tuple(_glance(value) for value in own.values()), digest)


def _glance(value: Tensor) -> tuple[object, ...]:
    """What shows a change at little cost: which tensor, its version, and some values, for writes that count none."""
    version = None if value.is_inference() else value._version
    if type(value) not in (Tensor, nn.Parameter) or value.device.type == "meta":  # packed in its own way
        return id(value), version
    flat = value.detach().reshape(-1)
    some = flat[:: max(1, len(flat) // GLANCED)].cpu()
    return id(value), value.data_ptr(), version, float(some.double().sum())


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """sha256 (hex) over names, shapes and values rounded to bfloat16, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = readable(tensors[name])
        digest.update(f"{name}{tuple(value.shape)}".encode())
        if value.is_floating_point():
            value = value.to(torch.bfloat16).view(torch.int16)
        array = value.contiguous().cpu().clone().numpy()  # of a copy: a storage that NumPy saw is never resized again
        digest.update(array.tobytes())
    return digest.hexdigest()
