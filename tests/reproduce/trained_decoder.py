"""A tiny random decoder that reads any English, rows for it, and Transformers' own attention behind a prefix."""

import json
from pathlib import Path
from typing import Any

import tiny
import tinyrun
import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

STORIES = Path(__file__).parents[3] / "shared/models/stories260K"


def llama(dtype: torch.dtype = torch.float64) -> Any:
    """Three layers of four heads over two."""
    config = tf.LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        attn_implementation="eager",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tf.LlamaForCausalLM(config)
        for one in model.parameters():
            torch.nn.init.normal_(one, std=0.3)  # away from equal attention
    return model.to(dtype).eval()


def tokenizer() -> Any:
    """Its bytes are its tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({one: index for index, one in enumerate([*alphabet, "<s>", "</s>"])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>")


def write(folder: Path) -> tuple[str, str]:
    """(model folder, file of rows)"""
    llama(torch.float32).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    rows = [{"text": row["text"][:20], "label": row["label"]} for row in tinyrun.rows(60, 0)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder / "model"), str(folder / "rows.jsonl")


def their_attention(model: Any, ids: torch.Tensor, prefix: Any = None) -> list[torch.Tensor]:
    """A layer each, (heads, queries, prefix + keys): of Transformers' eager attention, the prefix in its cache.

    prefix: tensors of a `Prefix`, by name; the text stands behind it.
    """
    cache, n_context = None, 0
    if prefix is not None:
        cache = tf.DynamicCache()
        for layer in range(model.config.num_hidden_layers):
            key, value = (prefix[f"decoder.{layer}.self.{which}"].detach()[None] for which in ("key", "value"))
            cache.update(key, value, layer)
            n_context = key.shape[2]
    positions = torch.arange(n_context, n_context + ids.shape[1])[None]
    with tiny.Float64(), torch.no_grad():
        out = model(ids, past_key_values=cache, position_ids=positions, output_attentions=True)
    return [one[0] for one in out.attentions]


def their_keys(model: Any, ids: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A layer each, (kv_heads, keys, d): of Transformers' own cache."""
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
    return [(layer.keys[0], layer.values[0]) for layer in cache.layers]


def text(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (1, length), generator=torch.Generator().manual_seed(seed))


def both_models(folder: Path) -> list[tuple[str, str]]:
    """The tiny one, and stories260K where it lies beside the project."""
    model, rows = write(folder)
    return [(model, rows), *([(str(STORIES), rows)] if STORIES.exists() else [])]
