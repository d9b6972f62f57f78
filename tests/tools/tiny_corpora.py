"""Folders of tiny corpora, and of tiny models that tell their words apart."""

import json
import random

import tinyrun
import torch
import transformers


def corpus(folder, sizes=(("train", 40), ("dev", 8), ("test", 10))):
    """Rows of two labels, in words that the tiny tokenizers tell apart."""
    names = {"train": "train.jsonl", "dev": "dev32.jsonl", "test": "validation.jsonl"}
    draw = random.Random(0)
    folder.mkdir()
    for part, size in sizes:
        rows = [
            {
                "premise": " ".join(draw.choices(tinyrun.WORDS, k=4)),
                "hypothesis": " ".join(draw.choices(tinyrun.WORDS, k=3)),
                "label": draw.choice(["entailment", "not_entailment"]),
            }
            for _ in range(size)
        ]
        (folder / names[part]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"rte:{folder}"


def e2e(folder, count=60):
    folder.mkdir()
    for name, size in (("trainset.csv", count), ("devset.csv", 12), ("testset_w_refs.csv", 16)):
        rows = [f'"name[film], eatType[plot {n // 2}]",the film was good {n}\n' for n in range(size)]
        (folder / name).write_text("mr,ref\n" + "".join(rows))
    return f"e2e:{folder}"


def bert(folder):
    config = transformers.BertConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(folder)
    tinyrun.tokenizer().save_pretrained(folder)
    return str(folder)


def t5(folder):
    """A tiny T5 whose tokenizer tells RTE's labels apart and has the first sentinel."""
    words = tinyrun.tokenizer()
    words.add_tokens(["entailment", "not_entailment", "<extra_id_0>"])
    config = transformers.T5Config(
        vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)
