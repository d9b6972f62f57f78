"""Tiny masked language models and T5s, with tokenizers of three kinds, built on the spot."""

from typing import Any

import torch
import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = ["a", "the", "film", "plot", "cast", "was", "it", "is", "and", "not", "in", "every", "way", "good", "bad"]
WORDS += ["great", "terrible", "dull", "bright", "news", "about", "sport"]
SENTINELS = [f"<extra_id_{n}>" for n in range(4)]
BEHIND = "gripping"  # one token of the byte-level tokenizer behind a space, several at the start
TEXTS = [f"{one} {two}" for one in WORDS for two in [*WORDS, BEHIND]]


def word_piece() -> Any:
    """As BERT: lower case, [CLS] in front and [SEP] behind; the WORDS are one token each, others in letters."""
    letters = "abcdefghijklmnopqrstuvwxyz.,:()!"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*WORDS, *letters])]
    tokens += [f"##{letter}" for letter in letters]
    tokenizer = Tokenizer(models.WordPiece({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def byte_level() -> Any:
    """As RoBERTa: <s> in front and </s> behind; a word behind a space is another token than at the start."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token=AddedToken("<mask>", lstrip=True, special=True),
        model_max_length=62,
    )


def sentence_piece() -> Any:
    """As T5: </s> behind, four sentinels."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False, max_token_length=12)
    tokenizer.train_from_iterator([text.replace(" ", "▁") + "." for text in TEXTS], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        additional_special_tokens=SENTINELS,
    )


TOKENIZERS = {"bert": word_piece, "distilbert": word_piece, "roberta": byte_level, "t5": sentence_piece}


def config(name: str, vocabulary: int) -> Any:
    small = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    dropless = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    t5 = {"d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 3, "dropout_rate": 0.0}
    return {
        "bert": lambda: tf.BertConfig(
            vocab_size=vocabulary, pad_token_id=0, max_position_embeddings=64, **small, **dropless
        ),
        "roberta": lambda: tf.RobertaConfig(
            vocab_size=vocabulary, pad_token_id=1, max_position_embeddings=64, **small, **dropless
        ),
        "distilbert": lambda: tf.DistilBertConfig(
            vocab_size=vocabulary, dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=64,
            dropout=0.0, attention_dropout=0.0,
        ),
        "t5": lambda: tf.T5Config(
            vocab_size=vocabulary, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, **t5
        ),
    }[name]()  # fmt: skip


def make(name: str, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    """(model, tokenizer) in eval mode, all parameters away from 0 and 1; encoders with their language-model head."""
    tokenizer = TOKENIZERS[name]()
    auto = tf.AutoModelForSeq2SeqLM if name == "t5" else tf.AutoModelForMaskedLM
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = auto.from_config(config(name, len(tokenizer))).to(dtype).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
    return model, tokenizer
