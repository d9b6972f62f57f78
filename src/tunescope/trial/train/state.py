"""The state of a run half done, so that going on gives the same bits: safetensors and JSON, nothing pickled.

The tensors are written first, under a name with their step; `state.json`, replaced last, names them with
their sha256. So at any moment the folder holds one whole state, or none.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.system import files, sealed_json, tensor_files
from tunescope.system.say import say

Point = dict[str, float | int | None]


@dataclass
class State:
    """What changes while training, but for the parameters and the optimizer themselves."""

    step: int = 0
    best_score: float | None = None
    best_step: int = 0
    waited: int = 0  # evaluations since the best
    loss_sum: float = 0.0  # since the last point of the curve
    loss_count: int = 0
    seconds: float = 0.0
    curve: list[Point] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)


def save(folder: Path, state: State, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Write the state of a run into `folder` and drop the one before."""
    tensors, numbers = _flat(optimizer)
    tensors |= {f"now/{name}": tensor.detach() for name, tensor in parameters.items()}
    tensors |= {f"best/{name}": tensor for name, tensor in state.best.items()}
    tensors["rng/cpu"] = torch.get_rng_state()
    for name, gpu in _generators(parameters).items():
        tensors[name] = torch.cuda.get_rng_state(gpu)
    path = folder / f"state-{state.step:08d}.safetensors"
    tensor_files.put(path, tensors)
    plain = {name: value for name, value in vars(state).items() if name != "best"}
    sealed_json.put(
        folder / "state.json",
        {"state": plain, "optimizer": numbers, "tensors": path.name, "sha256": files.sha256(path)},
    )
    for old in folder.glob("state-*.safetensors*"):
        if old != path:
            files.remove(old)


def load(folder: Path, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> State | None:
    """Put the saved state back; None if there is none that is whole and of these tensors, so the run starts anew.

    One that is damaged is told.
    """
    if not (folder / "state.json").exists():
        return None
    try:
        record, tensors = _read(folder, parameters)
    except UserError as problem:
        say(f"note: {problem} The run that it is of is begun anew.", sys.stderr)
        return None
    with torch.no_grad():
        for name, leaf in parameters.items():
            leaf.copy_(tensors[f"now/{name}"])
    _restore(optimizer, tensors, record["optimizer"])
    torch.set_rng_state(tensors["rng/cpu"])
    for name, gpu in _generators(parameters).items():
        if name in tensors:
            torch.cuda.set_rng_state(tensors[name], gpu)
    best = {name: tensors[f"best/{name}"] for name in parameters if f"best/{name}" in tensors}
    return State(**record["state"], best=best)


def _read(folder: Path, parameters: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `save` wrote. Raises UserError where it is damaged, or of other tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    record = sealed_json.read(folder / "state.json")
    try:
        path = folder / Path(record["tensors"]).name
        if files.sha256(path) != record["sha256"]:
            raise files.Damaged(f"{path} is damaged: its sha256 is not the one that state.json names.")
        tensors = load_file(path)
    except (OSError, KeyError, SafetensorError) as problem:
        raise files.Damaged(f"{folder / 'state.json'} cannot be gone on from ({problem}).") from problem
    if not all(f"now/{name}" in tensors for name in parameters):
        raise files.Damaged(f"{path} has not all of the tensors that are trained.")
    if any(tensors[f"now/{name}"].shape != leaf.shape for name, leaf in parameters.items()):
        raise files.Damaged(f"{path} has the tensors that are trained in other shapes.")
    return record, tensors


def _generators(parameters: Mapping[str, Tensor]) -> dict[str, torch.device]:
    """Name -> GPU: that of what is trained, then the others, on which layers may be, with their dropout.

    They are counted, for a run may go on elsewhere than it began.
    """
    gpus = dict.fromkeys(leaf.device for leaf in parameters.values() if leaf.device.type == "cuda")
    if gpus:
        gpus |= dict.fromkeys(torch.device("cuda", number) for number in range(torch.cuda.device_count()))
    return {f"rng/cuda/{number}" if number else "rng/cuda": gpu for number, gpu in enumerate(gpus)}


def _flat(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """The optimizer's state as tensors by name, and its plain numbers."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, entries in optimizer.state_dict()["state"].items():
        numbers[str(index)] = {}
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{index}/{key}"] = value
            else:
                numbers[str(index)][key] = value
    return tensors, numbers


def _restore(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], numbers: Mapping[str, dict[str, Any]]
) -> None:
    entries = {int(index): dict(plain) for index, plain in numbers.items()}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "optimizer":
            index, _, key = rest.partition("/")
            entries[int(index)][key] = tensor
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
