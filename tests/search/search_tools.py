"""A tiny model, rows it could learn from, and the bench that searches are given."""

from typing import Any

import tiny
import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from tunescope.data.splits import split
from tunescope.models.anatomy import kind
from tunescope.models.fingerprint import fingerprint
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Plan

WORDS = {"a": "w5", "b": "w6 w7", "c": "w8"}


def tokenizer(start: bool = False) -> Any:
    made = tiny.tokenizer()
    if start:
        made.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def rows(count: int, first: int) -> list[dict[str, str]]:
    """Texts of two to four words that no other part has."""
    return [
        {"text": " ".join(f"w{20 + (first + i * k) % 60}" for k in range(1, 3 + i % 3)), "label": "abc"[i % 3]}
        for i in range(count)
    ]


def bench(family: str = "gpt2", *, start: bool = False, task: Any = None, tokens: Any = None, seed: int = 0) -> Bench:
    """In float64; 7 training rows, 6 development rows, 5 test rows."""
    model, tokens = tiny.make(family, seed=seed), tokens or tokenizer(start)
    which = kind(model)
    task = task or Classification(template="w3 {text} w4", words=WORDS)
    if isinstance(task, Generation):
        parts = [
            [{"input": r["text"], "target": "w9 w10"} for r in some] for some in (rows(7, 0), rows(6, 7), rows(5, 23))
        ]
    else:
        parts = [rows(7, 0), rows(6, 7), rows(5, 23)]
    splits = split(*parts)
    task = task.prepare(splits.parts(), tokens, model_kind=which)
    plan = Plan(model="tiny", data={"train": "none"}, task={"kind": "classification"})
    return Bench(plan, model, tokens, which, task, splits, {}, fingerprint(model), torch.device("cpu"))


MERGES = [("g", "o"), ("o", "d"), ("go", "od"), ("Ġ", "good"), ("b", "a"), ("ba", "d")]


def byte_level():
    """GPT-2's kind: a word's space belongs to its first token, and characters may be cut into bytes."""
    words = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", bos_token="<|end|>")
