"""What is being tuned as parameters of the model, for what looks for them there: optimizers, DDP, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.guards.marks import standing_in
from tunescope.errors import UserError
from tunescope.models.fingerprint import REGISTERED

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS = "model.safetensors"  # where transformers' Trainer looks for a checkpoint's tensors


@contextmanager
def registered(model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """The tensors, the same objects, stand under model.tunescope; afterwards that is gone.

    Within it what the model saves and loads are these tensors alone, so that a Trainer's checkpoints are small and
    resume to the same bits; the state dict of the whole model still loads as a whole.

    Raises UserError where there is nothing to train, and where something puts other tensors in their place (FSDP and
    DeepSpeed do), for then what is trained is not what acts.
    """
    if not tensors:
        raise UserError("registered(): nothing that is attached can be trained.")
    if REGISTERED in model._modules:
        raise UserError("registered(): the tensors are registered already.")
    tree = as_tree(tensors).train(model.training)
    own = _instead(model, tree)

    def check(*_: object) -> None:
        if not torch.compiler.is_compiling():
            _check_same(tree, tensors)

    handle = model.register_forward_pre_hook(check)
    try:
        model._modules[REGISTERED] = tree
        with standing_in(model, own):
            yield tree
            _check_same(tree, tensors)
    finally:
        handle.remove()
        model._modules.pop(REGISTERED, None)


def as_tree(tensors: Mapping[str, Tensor]) -> nn.Module:
    """Plain modules, nested as the names are by their dots, with the tensors as their parameters."""
    tree = nn.Module()
    for name, value in tensors.items():
        *path, last = name.split(".")
        at = tree
        for part in path:
            at = at._modules.setdefault(part, nn.Module())  # type: ignore[assignment]
        at._parameters[last] = value  # type: ignore[assignment]
    return tree


def _instead(model: PreTrainedModel, tree: nn.Module) -> dict[str, Any]:
    """What the model's own attributes are for the time being."""

    def save_pretrained(
        _self: object, folder: str | Path, *_: object, is_main_process: bool = True, **__: object
    ) -> None:
        from safetensors.torch import save_file

        if is_main_process:
            Path(folder).mkdir(parents=True, exist_ok=True)
            save_file(_apart(tree), Path(folder) / WEIGHTS, metadata={"format": "pt"})

    def load_state_dict(_self: object, state: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        if not all(name.startswith(f"{REGISTERED}.") for name in state):
            return type(model).load_state_dict(model, state, *args, **kwargs)
        own = {name.removeprefix(f"{REGISTERED}."): value for name, value in state.items()}
        check_state(own, tree)
        return tree.load_state_dict(own)

    def named_parameters(_self: object, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        named = type(model).named_parameters(model, *args, **kwargs)
        return (one for one in named if one[1].is_leaf)  # a bias that is tuned stands changed, and is made, no leaf

    own: dict[str, Any] = {
        name: MethodType(function, model)  # methods, for torch.compile looks at them as such
        for name, function in (
            ("save_pretrained", save_pretrained),
            ("load_state_dict", load_state_dict),
            ("named_parameters", named_parameters),
        )
    }
    # Trainer refuses a quantised model unless it is told that there are adapters on it
    return own | ({"_hf_peft_config_loaded": True} if getattr(model, "is_quantized", False) else {})


def _apart(tree: nn.Module) -> dict[str, Tensor]:
    """By name, in memory of its own each, as a file of safetensors has it: what is attached twice is twice in it."""
    held: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in tree.named_parameters(remove_duplicate=False):
        whole = value.detach().contiguous()
        held[f"{REGISTERED}.{name}"] = whole.clone() if id(value) in seen else whole
        seen.add(id(value))
    return held


def check_state(state: Mapping[str, Tensor], tree: nn.Module) -> None:
    """Raises UserError for a checkpoint of other artifacts than are attached."""
    given = {name: tuple(value.shape) for name, value in state.items()}
    wanted = {name: tuple(value.shape) for name, value in tree.state_dict().items()}
    for name in sorted(given.keys() | wanted.keys()):
        if given.get(name) != wanted.get(name):
            raise UserError(
                f"The checkpoint is of other artifacts than are attached: {name!r} is {given.get(name, 'absent')} "
                f"there and {wanted.get(name, 'absent')} here. Attach what it was trained with."
            )


def _check_same(tree: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    found = dict(tree.named_parameters(remove_duplicate=False))
    for name, value in tensors.items():
        if found.get(name) is not value:
            raise UserError(
                f"registered(): something has put another tensor in the place of {name!r}, as FSDP and DeepSpeed do, "
                "so what is trained would not be what acts. Give fully_shard ignored_params=set(tuned.parameters()), "
                "or call it before registered(); DDP is right as it is."
            )
