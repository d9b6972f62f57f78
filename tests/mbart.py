"""A random mBART in a folder, whose tokenizer marks English unless told."""

import torch
import transformers as tf

WORDS = ["the", "film", "was", "good", "filmul", "era", "bun"]


def write(folder):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁{word}" for word in WORDS)]
    tokenizer = tf.MBartTokenizer(vocab=[(piece, -float(i)) for i, piece in enumerate(pieces)], src_lang="en_XX")
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = tf.MBartConfig(vocab_size=len(tokenizer), d_model=16, **sizes, **heads, max_position_embeddings=64)
        tf.MBartForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
