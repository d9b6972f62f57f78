"""Tiny random models of every mapped family, made from transformers configurations: a second for the whole zoo."""

from typing import Any

import torch
import transformers as tf

from tunescope.system import machine

VOCAB = 97
DECODER = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA_LIKE = {
    **DECODER,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
BERT_LIKE = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
BART_LIKE = {
    "vocab_size": VOCAB,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 44,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}


def configs() -> dict[str, Any]:
    """Model type -> tiny config, for the fifteen mapped families."""
    return _decoders() | _others()


def auto_class(config: tf.PreTrainedConfig) -> Any:
    """The transformers class that builds it: with a language head, but for encoders."""
    if config.is_encoder_decoder:
        return tf.AutoModelForSeq2SeqLM
    return tf.AutoModel if config.model_type in ("bert", "roberta", "distilbert") else tf.AutoModelForCausalLM


def random_model(name: str, *, seed: int = 0, dtype: torch.dtype = torch.float64, attention: str | None = None) -> Any:
    """The family's tiny model, drawn by `seed`, as `build` makes it."""
    config = configs()[name]
    return build(auto_class(config), config, seed=seed, dtype=dtype, attention=attention)


def build(
    auto: Any,
    config: tf.PreTrainedConfig,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    attention: str | None = None,
) -> Any:
    """A random model of any config in eval mode, without dropout, its weights, biases and norms away from 0 and 1."""
    for field in list(config.to_dict()):
        if "drop" in field and isinstance(getattr(config, field, None), float):
            setattr(config, field, 0.0)
    with machine.seeded(seed):
        model = auto.from_config(config, attn_implementation=attention).to(dtype).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def _decoders() -> dict[str, Any]:
    return {
        "gpt2": tf.GPT2Config(**DECODER, n_embd=24, n_layer=2, n_head=3, n_positions=64),
        "gpt_neox": tf.GPTNeoXConfig(
            **DECODER, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3
        ),
        "opt": tf.OPTConfig(
            **DECODER,
            hidden_size=24,
            ffn_dim=40,
            num_hidden_layers=2,
            num_attention_heads=3,
            max_position_embeddings=64,
            word_embed_proj_dim=24,
        ),
        "llama": tf.LlamaConfig(**LLAMA_LIKE),
        "mistral": tf.MistralConfig(**LLAMA_LIKE, sliding_window=5, head_dim=6),
        "qwen2": tf.Qwen2Config(**LLAMA_LIKE),
        "qwen3": tf.Qwen3Config(**LLAMA_LIKE, head_dim=8),
        "gemma2": tf.Gemma2Config(
            **LLAMA_LIKE, head_dim=8, sliding_window=5, query_pre_attn_scalar=8, attn_logit_softcapping=2.0
        ),
        "phi": tf.PhiConfig(**{**LLAMA_LIKE, "hidden_size": 32, "num_key_value_heads": 4}),
    }


def _others() -> dict[str, Any]:
    return {
        "bert": tf.BertConfig(**BERT_LIKE),
        "roberta": tf.RobertaConfig(**{**BERT_LIKE, "max_position_embeddings": 66, "pad_token_id": 1}),
        "distilbert": tf.DistilBertConfig(
            vocab_size=VOCAB, dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=64
        ),
        "t5": tf.T5Config(
            vocab_size=VOCAB,
            d_model=24,
            d_kv=6,
            d_ff=40,
            num_layers=2,
            num_heads=3,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=0,
        ),
        "bart": tf.BartConfig(**BART_LIKE),
        "mbart": tf.MBartConfig(**BART_LIKE),
    }
