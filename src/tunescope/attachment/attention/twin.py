"""A small random model of the same class and kind of layers, on which what a large one would not show is cheap to try.

Windows are of a few tokens there and numbers of float64, so that a text is longer than every window, and rounding hides
nothing.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig

from tunescope.system.machine import seeded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WINDOW, VOCABULARY, INNER, WIDEST = 4, 64, 64, 1024
_NOT_TOLD = ("_name_or_path", "quantization_config", "dtype", "torch_dtype", "transformers_version")
_HEADS = {"codegen": 4}  # at least, for its fused map is cut into four parts
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_HEAD_SIZES = ("head_dim", "d_kv")
_TIED = "hybrid"  # of Zamba: layers that share one attention, so that there have to be two of them
_INNER = ("intermediate", "ffn", "n_inner", "dff", "d_ff")
_DECODERS_LAYERS = ("num_decoder_layers", "decoder_layers")  # of an encoder-decoder


def twin_config(config: PreTrainedConfig) -> dict[str, Any] | None:
    """The fields of a config of the same layers, one of each type, narrow; None where it cannot be told.

    Sizes of a head are kept, for rotary positions hang on them; so is a chunk, past which contexts are refused anyway.
    """
    stacks = {name: getattr(config, name, None) for name in ("encoder", "decoder")}
    if all(isinstance(stack, PreTrainedConfig) for stack in stacks.values()):  # a config for each of them, as T5Gemma
        inner = {name: twin_config(stack) for name, stack in stacks.items() if stack is not None}
        return None if None in inner.values() else _of_whole(config) | inner
    if config.get_text_config() is not config:
        return None
    heads, width = int(config.num_attention_heads), int(config.hidden_size)
    groups = int(next((found for name in _KV_HEADS if (found := getattr(config, name, None))), heads))
    kv_heads = min(groups, 2) if 2 * width // groups <= WIDEST else 1
    fewer = max(kv_heads * min(heads // groups, 2), _HEADS.get(config.model_type, 1))
    narrow = -(-width * fewer // heads)  # as of flan-t5-small, whose 6 heads of 64 are of states of 512
    fields = config.to_dict()  # a config whose layers differ refuses to be asked for the size of a head
    is_head_told = any(fields.get(name) for name in _HEAD_SIZES)
    if narrow > WIDEST or (narrow * heads != width * fewer and not is_head_told):
        return None
    told, names = _of_kept_layers(config), dict(config.attribute_map)
    told = {name: _small(name, value, width, narrow) for name, value in told.items()}
    told |= {name: token for name, token in _TOKENS.items() if name in told}
    for name in (names.get("num_attention_heads", "num_attention_heads"), "decoder_attention_heads"):
        if name in told:
            told[name] = fewer
    told |= {name: kv_heads if groups < heads else fewer for name in _KV_HEADS if name in told}
    return told


def _of_whole(config: PreTrainedConfig) -> dict[str, Any]:
    """What the config of two stacks says of both."""
    told: dict[str, Any] = copy.deepcopy(config.to_dict())
    known = {name: value for name, value in told.items() if name not in _NOT_TOLD}
    return {name: VOCABULARY if name == "vocab_size" else _TOKENS.get(name, value) for name, value in known.items()}


def _of_kept_layers(config: PreTrainedConfig) -> dict[str, Any]:
    """The config's fields with those that say something of each layer cut to the layers that are kept."""
    told: dict[str, Any] = copy.deepcopy(config.to_dict())
    depth = int(config.num_hidden_layers)
    kept = _kept(config, depth)
    for name in _NOT_TOLD:
        told.pop(name, None)
    for name, value in told.items():
        if isinstance(value, list) and len(value) == depth > len(kept):
            told[name] = [value[index] for index in kept]
    if told.get("hybrid_layer_ids"):
        told["hybrid_layer_ids"] = [new for new, old in enumerate(kept) if old in told["hybrid_layer_ids"]]
    if told.get("per_layer_config"):
        by_layer = {int(index): value for index, value in told["per_layer_config"].items()}
        told["per_layer_config"] = {new: by_layer[old] for new, old in enumerate(kept) if old in by_layer}
    if told.get("num_kv_shared_layers"):
        told["num_kv_shared_layers"] = sum(index >= depth - int(told["num_kv_shared_layers"]) for index in kept)
    told[dict(config.attribute_map).get("num_hidden_layers", "num_hidden_layers")] = len(kept)
    for name in _DECODERS_LAYERS:
        if name in told:
            told[name] = min(told[name], 2)
    return told


def _kept(config: PreTrainedConfig, depth: int) -> list[int]:
    """The first layer of each type, and two where there is one type; those that share keys are of their own type.

    Of layers that are tied to the first of their type two.
    """
    types = list(getattr(config, "layer_types", None) or ["layer"] * depth)
    shared = depth - int(getattr(config, "num_kv_shared_layers", None) or 0)
    marked = [(kind, index >= shared) for index, kind in enumerate(types)]
    first = {kind: index for index, kind in reversed(list(enumerate(marked)))}.values()
    tied = [index for index, kind in enumerate(types) if kind == _TIED][:2]
    kept = sorted({*first, *tied})
    return kept if len(kept) > 1 else list(range(min(depth, 2)))


def _small(name: str, value: Any, width: int, narrow: int) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if name in ("max_position_embeddings", "n_positions"):
        return max(value, VOCABULARY)
    if name.endswith("vocab_size") or name.startswith("vocab_size"):
        return VOCABULARY
    if value == width and ("head" not in name):
        return narrow
    if name in ("attention_hidden_size", "mamba_headdim") and value * narrow % width == 0:  # multiples of the width
        return value * narrow // width
    if name in ("sliding_window", "local_attention", "local_radius", "index_topk"):
        return min(value, WINDOW)
    if name == "attention_chunk_size":
        return max(value, VOCABULARY)
    if any(part in name for part in _INNER):
        return min(value, INNER)
    if "experts" in name:
        return min(value, 2 if "per_tok" in name else 4)
    return value


def twin(model: PreTrainedModel, told: dict[str, Any]) -> PreTrainedModel:
    """The random model of such a config, in eval mode and float64, its weights away from 0 and 1."""
    config = type(model.config).from_dict(dict(told))
    own = "sdpa" if getattr(config, "alibi", False) else "eager"  # of Falcon's, eager adds its biases twice
    with seeded(0), torch.device("cpu"):
        made: PreTrainedModel = type(model)._from_config(config, attn_implementation=own, dtype=torch.float32)
        made = made.to(torch.float64).eval()
        if hasattr(made, "set_experts_implementation"):
            made.set_experts_implementation("eager")  # the others know no float64
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made
