"""LoRA in a GGUF file of its own, as llama.cpp's `--lora` reads it, in float32, the scale inside B."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.attachment.merge import can_merge
from tunescope.errors import UserError
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.peft import lora, lora_out
from tunescope.exchange.peft.patches import Patches
from tunescope.exchange.serving.refusals import KEPT
from tunescope.methods.artifact import Artifact, Context, Spec
from tunescope.methods.deltas.lora import LoRA
from tunescope.methods.text_form import name_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedModel

FILE = "lora.gguf"
ARCHITECTURES = {"gpt2": "gpt2", "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
PAIRED = ("llama", "mistral")  # GGUF has the rows of their queries and keys that are turned together side by side
INSTEAD = "merge it (--to merged) and convert the checkpoint by llama.cpp's convert_hf_to_gguf.py"
OLDEST = (0, 17)  # gguf before 0.16.2 has no names of Qwen3, or reads no adapter back

ROUNDING = 1e-5  # of outputs: the file has float32, whatever the model has


def write(given: Outgoing, folder: Path) -> list[str]:
    """`lora.gguf`; what to know of it.

    Raises:
        UserError: what is no plain LoRA, a family whose GGUF was not tried, a map that has no name there, or no package
            gguf that is new enough.
    """
    _check(given)
    import gguf

    names, pairs = _names(given), lora_out.factors(given.artifacts, given.model)
    alpha = max(len(a) for a, _ in pairs.values())
    made = gguf.GGUFWriter(folder / FILE, ARCHITECTURES[given.model.config.model_type])
    made.add_type(gguf.GGUFType.ADAPTER)
    made.add_string(gguf.Keys.Adapter.TYPE, "lora")
    made.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(alpha))
    for module, (a, b) in pairs.items():
        made.add_tensor(f"{names[module]}.lora_a", _stored(a))
        made.add_tensor(f"{names[module]}.lora_b", _stored(_paired(given.model, names[module], b) * (len(a) / alpha)))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()
    notes = [f"LoRA of rank {alpha} on {len(names)} maps: llama-server -m BASE.gguf --lora {FILE}"]
    if any(_lora(artifact).dropout for artifact in given.artifacts):
        notes.append("dropout, which acts in training alone, was left out")
    return notes


def read_back(given: Outgoing, folder: Path) -> list[Artifact]:
    """The LoRAs of the file, as llama.cpp would add them to the base."""
    from gguf import GGUFReader, Keys

    reader = GGUFReader(folder / FILE)
    alpha = float(reader.fields[Keys.Adapter.LORA_ALPHA].contents())
    held = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in reader.tensors}
    own = {module: path for path, module in given.model.named_modules()}
    tensors, ranks = dict[str, Tensor](), dict[str, int]()
    for module, name in _names(given).items():
        a, b = held.pop(f"{name}.lora_a"), _unpaired(given.model, name, held.pop(f"{name}.lora_b"))
        path = own[module]
        ranks[path] = len(a)
        tensors[f"base_model.model.{path}.lora_A.weight"] = a.to(given.model.dtype)
        tensors[f"base_model.model.{path}.lora_B.weight"] = (b * (alpha / len(a))).to(given.model.dtype)
    assert not held
    config = {"r": 1, "lora_alpha": 1, "rank_pattern": ranks, "alpha_pattern": ranks, "target_modules": list(ranks)}
    return lora.read(config, tensors, Patches(given.model))[0]


def _check(given: Outgoing) -> None:
    """UserError for what is no plain LoRA of a decoder with its head, of a family that was tried."""
    for artifact in given.artifacts:
        if not isinstance(artifact.spec, LoRA) or artifact.spec.gain:
            kind = "DoRA" if isinstance(artifact.spec, LoRA) else name_of(type(artifact.spec))
            raise UserError(
                f"A GGUF adapter holds LoRA alone, and {kind} ({artifact.spec}) is none: {_instead(artifact.spec)}."
            )
    family = given.model.config.model_type
    if family not in ARCHITECTURES or given.model.get_output_embeddings() is None:
        raise UserError(
            f"--to llama_lora was not tried on {type(given.model).__name__} of {family}: how GGUF has its maps is not "
            f"known here. It writes those of decoders with their head of {', '.join(ARCHITECTURES)}. For others "
            "--to peft, then llama.cpp's convert_lora_to_gguf.py."
        )
    if find_spec("gguf") is None:
        raise UserError("A GGUF adapter is written by the package gguf, which is not installed. Type: pip install gguf")
    if tuple(map(int, version("gguf").split(".")[:2])) < OLDEST:
        raise UserError(
            f"A GGUF adapter is written by the package gguf, of which {version('gguf')} is too old. "
            "Type: pip install --upgrade gguf"
        )


def _instead(spec: Spec) -> str:
    """What to do with what is no LoRA."""
    if can_merge(spec):
        return INSTEAD
    if isinstance(spec, Context):
        return "--to llama_slot takes a context, with a LoRA beside it or without"
    return f"no llama.cpp server has a place for it; {KEPT}"


def _names(given: Outgoing) -> dict[nn.Module, str]:
    """Linear map that a LoRA acts on -> its weight's name in a GGUF of the base."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    config = given.model.config
    known = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}[ARCHITECTURES[config.model_type]]
    names = get_tensor_name_map(known, config.num_hidden_layers)
    own = {module: name for name, module in given.model.named_modules()}
    found = {}
    for module in lora_out.factors(given.artifacts, given.model):
        name = names.get_name(own[module])
        if name is None:
            raise UserError(f"A GGUF of this base has no map for {own[module]!r}: {INSTEAD}.")
        found[module] = f"{name}.weight"
    return found


def _paired(model: PreTrainedModel, name: str, b: Tensor) -> Tensor:
    """B as GGUF has the rows of its map; (out, rank)."""
    heads = _turned_heads(model, name)
    return b.view(heads, 2, -1, b.shape[1]).transpose(1, 2).reshape(b.shape) if heads else b


def _unpaired(model: PreTrainedModel, name: str, b: Tensor) -> Tensor:
    heads = _turned_heads(model, name)
    return b.view(heads, -1, 2, b.shape[1]).transpose(1, 2).reshape(b.shape) if heads else b


def _turned_heads(model: PreTrainedModel, name: str) -> int:
    """How many heads a map makes whose rows GGUF has in another order; 0 where it has them as they are."""
    config = model.config
    kinds = {"attn_q": config.num_attention_heads, "attn_k": getattr(config, "num_key_value_heads", 0)}
    return int(kinds.get(name.split(".")[-2], 0)) if config.model_type in PAIRED else 0


def _stored(factor: Tensor) -> NDArray[np.float32]:
    return factor.detach().float().cpu().contiguous().numpy()


def _lora(artifact: Artifact) -> LoRA:
    assert isinstance(artifact.spec, LoRA)
    return artifact.spec
