"""The networks of small language models of texts, by kind and size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["decoder", "masked", "t5"]
HEAD = 32  # width of a head


@dataclass(frozen=True)
class Size:
    """Layers (of the encoder and of the decoder, where there are two), heads, width, tokens, and a row's length."""

    layers: int = 4
    heads: int = 6
    width: int = 192
    vocabulary: int = 4096
    length: int = 128


def fresh(kind: Kind, size: Size, words: Any) -> Any:
    """An untrained one in the words of the tokenizer: a Llama, a BERT or a T5, its output tied to its embeddings."""
    from transformers import BertForMaskedLM, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

    inner = size.width * 8 // 3 // 32 * 32
    given: dict[str, Any] = {"pad_token_id": words.pad_token_id, "eos_token_id": words.eos_token_id}
    given["attn_implementation"] = (
        "eager"  # rows are short: torch's fused backward in bfloat16 takes four times as long
    )
    if kind == "decoder":
        config = LlamaConfig(
            vocab_size=len(words),
            hidden_size=size.width,
            intermediate_size=inner,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            max_position_embeddings=1024,
            initializer_range=size.width**-0.5 / 2,
            bos_token_id=None,
            tie_word_embeddings=True,
            **given,
        )
        return LlamaForCausalLM(config)
    if kind == "masked":
        return BertForMaskedLM(_bert(size, len(words), given))
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(words),
            d_model=size.width,
            d_kv=size.width // size.heads,
            d_ff=inner,
            num_layers=size.layers,
            num_heads=size.heads,
            feed_forward_proj="gated-gelu",
            dropout_rate=0.0,
            tie_word_embeddings=True,
            decoder_start_token_id=words.pad_token_id,
            **given,
        )
    )


def _bert(size: Size, vocabulary: int, given: Mapping[str, Any]) -> Any:
    """Without dropout, as the others here."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=size.width,
        intermediate_size=4 * size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        max_position_embeddings=size.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **given,
    )
