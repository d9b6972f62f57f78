"""A tiny GPT-2 with a word tokenizer in a folder, and a file it can learn from: a run takes seconds."""

import json
import random
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["good", "bad", "film", "plot", "was", "a", "the", "dull", "bright", "Label:", "neg", "pos"]


def tokenizer():
    names = ["[PAD]", "[UNK]", "[EOS]", *WORDS]
    made = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", model_max_length=64
    )


def model(seed=0):
    config = transformers.GPT2Config(
        vocab_size=16, n_embd=16, n_layer=2, n_head=2, n_positions=64, pad_token_id=0, eos_token_id=2, bos_token_id=2
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.GPT2LMHeadModel(config).eval()


def rows(count, seed):
    """`label` says which of two words the text holds."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice(["neg", "pos"])
        words = draw.choices(["film", "plot", "was", "a", "the"], k=draw.randint(2, 8))
        words.insert(draw.randrange(len(words)), {"neg": "dull", "pos": "bright"}[label])
        made.append({"text": " ".join(words), "label": label})
    return made


def sst2(folder):
    """The rows as GLUE's copies of SST-2 have them, and the name of the corpus."""
    folder.mkdir()
    for seed, (part, count) in enumerate({"train": 64, "dev": 24, "test": 32}.items()):
        made = [{"text": one["text"], "label": str(int(one["label"] == "pos"))} for one in rows(count, seed)]
        (folder / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in made))
    return f"sst2:{folder}"


def write(folder):
    """(model folder, {"train": file, "dev": file, "test": file})"""
    folder = Path(folder)
    model().save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    data = {}
    for seed, (part, count) in enumerate({"train": 64, "dev": 24, "test": 32}.items()):
        data[part] = str(folder / f"{part}.jsonl")
        Path(data[part]).write_text("".join(json.dumps(row) + "\n" for row in rows(count, seed)))
    return str(folder / "model"), data


def opened(bench):
    """For `comparison.run`: this bench, whatever is asked of it."""

    def at(question):
        bench.plan = question
        return bench

    return at
