"""Random translators in folders, whose tokenizers mark English unless told."""

import torch
import transformers as tf

WORDS = ["the", "film", "was", "good", "filmul", "era", "bun"]
PIECES = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁{word}" for word in WORDS)]
SCORES = [(piece, -float(i)) for i, piece in enumerate(PIECES)]


def write(folder, family="mbart"):
    """family: "mbart", "mbart50" or "nllb"."""
    tokenizer = {
        "mbart": lambda: tf.MBartTokenizer(vocab=SCORES, src_lang="en_XX"),
        "mbart50": lambda: tf.MBart50Tokenizer(vocab=SCORES, src_lang="en_XX"),
        "nllb": lambda: tf.NllbTokenizer(
            vocab={piece: i for i, piece in enumerate(PIECES)}, merges=[], src_lang="eng_Latn"
        ),
    }[family]()
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "d_model": 16}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64}
    start = {} if family == "mbart" else {"decoder_start_token_id": 2}
    config, made = (
        (tf.M2M100Config, tf.M2M100ForConditionalGeneration)
        if family == "nllb"
        else (tf.MBartConfig, tf.MBartForConditionalGeneration)
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made(config(vocab_size=len(tokenizer), **sizes, **start)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
