"""Families that have no file, tiny."""

from typing import Any

import tiny
import transformers as tf

LAYERS, SMALL = {"num_hidden_layers": 2, "num_attention_heads": 3}, {"hidden_size": 24, "intermediate_size": 40}


UNREACHED = {
    "gpt_neox_japanese": lambda: tf.GPTNeoXJapaneseConfig(
        **tiny.DECODER, hidden_size=24, max_position_embeddings=64, **LAYERS
    ),
    "deberta": lambda: tf.DebertaConfig(vocab_size=tiny.VOCAB, **SMALL, **LAYERS, max_position_embeddings=64),
    "deberta-v2": lambda: tf.DebertaV2Config(vocab_size=tiny.VOCAB, **SMALL, **LAYERS, max_position_embeddings=64),
}


OWN_ATTENTION = {  # by model type: those that compute attention by themselves, and are reached all the same
    "gptj": lambda: tf.GPTJConfig(**tiny.DECODER, n_embd=24, n_layer=2, n_head=3, rotary_dim=4, n_positions=64),
    "codegen": lambda: tf.CodeGenConfig(**tiny.DECODER, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64),
    "gpt_neo": lambda: tf.GPTNeoConfig(
        **tiny.DECODER,
        hidden_size=24,
        num_layers=2,
        num_heads=3,
        attention_types=[[["global", "local"], 1]],
        window_size=5,
        max_position_embeddings=64,
    ),
    "falcon": lambda: tf.FalconConfig(**tiny.DECODER, hidden_size=24, **LAYERS),
    "bloom": lambda: tf.BloomConfig(**tiny.DECODER, hidden_size=24, n_layer=2, n_head=3),
}


UNMAPPED = {
    **OWN_ATTENTION,
    "electra": lambda: tf.ElectraConfig(**tiny.BERT_LIKE, embedding_size=16),
    "camembert": lambda: tf.CamembertConfig(**{**tiny.BERT_LIKE, "pad_token_id": 1, "max_position_embeddings": 66}),
    "xlm-roberta": lambda: tf.XLMRobertaConfig(**{**tiny.BERT_LIKE, "pad_token_id": 1, "max_position_embeddings": 66}),
    "modernbert": lambda: tf.ModernBertConfig(
        **tiny.BERT_LIKE, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
    "phi3": lambda: tf.Phi3Config(**tiny.LLAMA_LIKE),
    "stablelm": lambda: tf.StableLmConfig(**tiny.LLAMA_LIKE),
    "olmo": lambda: tf.OlmoConfig(**tiny.LLAMA_LIKE),
    "pegasus": lambda: tf.PegasusConfig(**tiny.BART_LIKE),
}


def unlisted(name: str) -> Any:
    config = (UNREACHED | UNMAPPED | {"albert": albert})[name]()
    if config.is_encoder_decoder:
        return tiny.build(tf.AutoModelForSeq2SeqLM, config)
    is_encoder = name in ("deberta", "deberta-v2", "electra", "camembert", "xlm-roberta", "modernbert", "albert")
    return tiny.build(tf.AutoModel if is_encoder else tf.AutoModelForCausalLM, config)


def albert() -> Any:
    return tf.AlbertConfig(**tiny.BERT_LIKE, embedding_size=16)
