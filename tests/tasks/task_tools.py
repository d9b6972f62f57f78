"""Tokenizers of three kinds and tiny random models, built on the spot."""

from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The film is great and the cast is good.\nLabel: great",
    "A terrible film, bad in every way.\nLabel: bad",
    "not bad at all\nLabel: good\n\nthe greatest film\nLabel: terrible",
] * 4


def byte_level(*, eos: bool = True) -> Any:
    """As GPT-2: nothing in front, no padding token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|end|>"] if eos else []
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=sorted(alphabet), special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>" if eos else None)


def sentence_piece(*, bos: bool, front: str = "") -> Any:
    """As Llama (bos: <s> in front) or T5 (no bos: </s> behind), with a space put before the text.

    front: of one that has no bos, what stands in front all the same: <s>, as in BART's.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=special, show_progress=False, max_token_length=8)
    tokenizer.train_from_iterator([text.replace(" ", "▁") for text in CORPUS], trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    single = "<s> $A" if bos else f"{front} $A </s>".strip()
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token=None if bos else "<pad>",
    )


def config(name: str, vocabulary: int = 97) -> Any:
    ends = {"vocab_size": vocabulary, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    llama = {
        **ends,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    bart = {
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 44,
        "max_position_embeddings": 64,
    }
    t5 = {"d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 3}
    make = {
        "gpt2": lambda: tf.GPT2Config(**ends, n_embd=24, n_layer=2, n_head=3, n_positions=64),
        "llama": lambda: tf.LlamaConfig(**llama),
        "mistral": lambda: tf.MistralConfig(**llama, sliding_window=4, head_dim=6),
        "t5": lambda: tf.T5Config(**ends, **t5, decoder_start_token_id=0),
        "bart": lambda: tf.BartConfig(**ends, **bart, decoder_start_token_id=2),
        "mbart": lambda: tf.MBartConfig(**ends, **bart),
        "bert": lambda: tf.BertConfig(
            vocab_size=vocabulary,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_labels=3,
        ),
    }
    return make[name]()


def model(name: str, vocabulary: int = 97, seed: int = 0) -> Any:
    """In float64 and eval mode, all parameters away from 0 and 1."""
    settings = config(name, vocabulary)
    auto = tf.AutoModelForSeq2SeqLM if settings.is_encoder_decoder else tf.AutoModelForCausalLM
    if name == "bert":
        auto = tf.AutoModelForSequenceClassification
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = auto.from_config(settings).double().eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
    return made
