"""A small classification in words that the tiny models know, and prompts made of it."""

from typing import Any

import tiny

from tunescope.models.anatomy import kind
from tunescope.probes.anchors.prompts import Prompt, choices
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts.spans import Spans, spans

TASK = Classification(template="w3 {text} w4", words={"a": "w5", "b": "w6 w7", "c": "w8"})
ROWS = [
    {"text": "w9 w10", "label": "a"},
    {"text": "w11", "label": "b"},
    {"text": "w12 w13 w14", "label": "c"},
]
QUERIES = [{"text": "w10 w11", "label": "b"}, {"text": "w15", "label": "c"}]


def demonstrated(seed: int = 0, task: Classification = TASK) -> Spans:
    return spans(tiny.tokenizer(), task.demonstrated(ROWS, 1, seed))


def prompted(model: Any, task: Classification = TASK, seed: int = 0) -> tuple[list[Prompt], Any]:
    """Prompts of different lengths, and how the classes are told apart."""
    tokenizer = tiny.tokenizer()
    found = demonstrated(seed, task)
    queries = task.encode(QUERIES, tokenizer, model_kind=kind(model), behind="")
    return [Prompt(found, query) for query in queries], choices(task.word_ids(tokenizer, kind(model)))
