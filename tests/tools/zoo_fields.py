"""A tiny configuration by its class's name, and the fields that many families share."""

from collections.abc import Callable
from typing import Any

import tiny
import transformers as tf

Maker = Callable[[], Any]
HEADS = {"head_dim": 8}  # four of them are 32 wide, and the hidden states 24
SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
HIDDEN_FIELDS = {  # read by families that do not declare them
    "head_dim",
    "partial_rotary_factor",
    "global_head_dim",
    "num_global_key_value_heads",
    "experts_implementation",
    "pad_token_id",
}


def like(shared: dict[str, Any]) -> Callable[..., Maker]:
    """A function of a class's name ("Gemma" of GemmaConfig) and of fields, which go before the shared ones."""

    def of(name: str, **fields: Any) -> Maker:
        return lambda: _config(name, {**shared, **fields}, set(fields))

    return of


def _config(name: str, fields: dict[str, Any], own: set[str]) -> Any:
    """transformers takes any field and is silent about one that it does not know: here that is an error."""
    made = getattr(tf, f"{name}Config")
    known = {*made.__dataclass_fields__, *made.attribute_map, *HIDDEN_FIELDS}
    if unknown := own - known:
        raise ValueError(f"{name}Config has no {', '.join(sorted(unknown))}. It has: {', '.join(sorted(known))}.")
    return made(**{field: value for field, value in fields.items() if field in known})


llama_like = like(tiny.LLAMA_LIKE)
wide = like({**tiny.LLAMA_LIKE, **HEADS})
bert_like = like(tiny.BERT_LIKE)
roberta_like = like({**tiny.BERT_LIKE, "pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 66})
bart_like = like(tiny.BART_LIKE)
decoder = like(tiny.DECODER)
