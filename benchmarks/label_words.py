"""Scoring K label words: one pass over the input and K short continuations, against K passes over both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import Scale, gpt2, text
from tunescope.tasks.answers.likelihood import word_scores
from tunescope.tasks.kinds.classification import Classification

WORDS = {"a": "w1", "b": "w2", "c": "w3 w4", "d": "w5 w6", "e": "w7 w8 w9", "f": "w10 w11 w12"}  # a word, a token


def run(scale: Scale) -> Result:
    model = gpt2(scale)
    tokenizer = word_level(scale.gpt2[-1])
    rows = [
        {"text": tokenizer.decode(ids), "label": list(WORDS)[index % len(WORDS)]}
        for index, ids in enumerate(text(scale, model.config.vocab_size))
    ]
    task = Classification(words=WORDS, template="{text}")
    encoded = task.encode(rows, tokenizer, model_kind="decoder")
    prompts = [row.input_ids for row in encoded]
    words = [tuple(tokenizer(word)["input_ids"]) for word in WORDS.values()]
    predict = "predict"
    runs = {
        predict: lambda: task.predict(model, encoded, tokenizer),
        "K passes": lambda: passes(model, prompts, words),
        "one pass": lambda: passes(model, prompts, words[:1]),
    }
    times = alternating(runs, scale.rounds)
    case = f"gpt2, {len(words)} labels of 1 to 3 tokens"
    ratios = [compared(case, predict, "K passes", times), compared(case, predict, "one pass", times)]
    difference = (word_scores(model, prompts, words, tokenizer) - passes(model, prompts, words)).abs().max()
    extra = tokens_run(model, lambda: task.predict(model, encoded, tokenizer)) - short(prompts, words)
    checks = [
        Check("largest difference of a label's log-probability", float(difference), 1e-3),
        Check("tokens run beyond one pass and K short continuations", extra, 0),
    ]
    return Result(ratios, checks, {"rows": scale.rows, "tokens": scale.tokens, "labels": len(words)})


def passes(model: Any, prompts: Sequence[Sequence[int]], words: Sequence[Sequence[int]]) -> Tensor:
    """(prompts, words): log-probabilities by a whole pass for every word, logits only where they are read."""
    scores = []
    with torch.no_grad():
        for word in words:
            ids = torch.tensor([[*prompt, *word[:-1]] for prompt in prompts])
            logits = model(input_ids=ids, logits_to_keep=len(word), use_cache=False).logits.log_softmax(-1)
            scores.append(logits[:, range(len(word)), list(word)].sum(-1))
    return torch.stack(scores, 1)


def short(prompts: Sequence[Sequence[int]], words: Sequence[Sequence[int]]) -> int:
    """Tokens in one pass over the prompts and in the continuations, padded to the longest; last tokens are not run."""
    n_long = sum(len(word) > 1 for word in words)
    return sum(map(len, prompts)) + len(prompts) * n_long * (max(map(len, words)) - 1)


def tokens_run(model: Any, predict: Any) -> int:
    """How many tokens pass the model's first layer."""
    seen: list[int] = []

    def count(_module: Any, args: tuple[Tensor, ...]) -> None:
        seen.append(args[0].shape[0] * args[0].shape[1])

    handle = model.transformer.h[0].register_forward_pre_hook(count)
    try:
        predict()
    finally:
        handle.remove()
    return sum(seen)


def word_level(vocabulary: int) -> Any:
    """A tokenizer whose tokens are w0, w1, ... between spaces."""
    inner = Tokenizer(models.WordLevel({f"w{index}": index for index in range(vocabulary)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="w0", eos_token="w0")
