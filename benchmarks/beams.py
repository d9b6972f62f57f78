"""Beam search of the 630 E2E test tables under a prefix of 10: the prefix is shared by rows and beams.

Under GPT-2's shape, whose weights are random and whose tokens are those of the small model, it is every third table.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tunescope as ts
from benchmarks.tools.measuring import Check, Ratio, Result, alternating, compared
from benchmarks.tools.models import Scale, gpt2
from tunescope.tasks.answers.beam_search import BeamSearch
from tunescope.tasks.answers.decode import written
from tunescope.tasks.task import Encoded

SHARED = Path(__file__).parents[2] / "shared"
STORIES, TABLES = SHARED / "models/stories260K", SHARED / "data/e2e/test.jsonl.gz"
BEAMS, LENGTH, TARGET = 5, 10, 1.03
TOKENS = {"full": 32, "tiny": 3}  # written for every table, whatever its end, so that both take the same steps
ROWS, PASSES, THIRD = 32, 2, 3


def run(scale: Scale) -> Result:
    if not (STORIES.exists() and TABLES.exists()):
        return Result(skipped="stories260K and the E2E data are not beside the project")
    rows, tokenizer = tables(scale)
    passes = PASSES if scale.name == "full" else 1
    settings = {
        "tables": len(rows),
        "tables of gpt2": len(rows[::THIRD]),
        "batch": ROWS,
        "beams": BEAMS,
        "tokens written": TOKENS[scale.name],
        "a round": "one batch by each, in turn",
    }
    ratios = []
    for name, made, some, times in (
        ("stories260K", model, rows, passes),
        ("gpt2", lambda: gpt2(scale), rows[::THIRD], 1),
    ):
        ratio, whole = _measured(name, made, some, tokenizer, times, scale)
        ratios.append(ratio)
        settings[f"{name}, whole time, prefix / bare"] = whole
    return Result(
        ratios, [Check("answers that another batch size changes", _changed(rows, tokenizer, scale), 0)], settings
    )


def _measured(
    name: str, made: Callable[[], Any], rows: list[Encoded], tokenizer: Any, passes: int, scale: Scale
) -> tuple[Ratio, float]:
    tuned = ts.attach(made(), ts.Prefix(length=LENGTH))
    variants = {
        "bare": decoder(made(), rows, tokenizer, TOKENS[scale.name]),
        "prefix": decoder(tuned.model, rows, tokenizer, TOKENS[scale.name]),
    }
    times = alternating(variants, -(-len(rows) // ROWS) * passes)
    ratio = compared(f"{name}, prefix of {LENGTH}", "prefix", "bare", times, TARGET)
    return ratio, round(sum(times["prefix"]) / sum(times["bare"]), 4)


def model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(STORIES).eval().requires_grad_(False)


def tables(scale: Scale) -> tuple[list[Encoded], Any]:
    """Every different table once, longest first as `written` takes them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(STORIES)
    with gzip.open(TABLES, "rt", encoding="utf-8") as lines:
        texts = list(dict.fromkeys(json.loads(line)["table"] for line in lines))
    texts = texts if scale.name == "full" else texts[:6]
    rows = [Encoded(1, tuple(tokenizer(f"{text}\n")["input_ids"]), (2,), None, (), text) for text in texts]
    return sorted(rows, key=lambda row: -len(row.input_ids)), tokenizer


def decoder(network: Any, rows: list[Encoded], tokenizer: Any, tokens: int) -> Callable[[], None]:
    """Decodes the next batch at every call."""
    parts = itertools.cycle([rows[at : at + ROWS] for at in range(0, len(rows), ROWS)])
    how = BeamSearch(beams=BEAMS, min_new_tokens=tokens)

    def decode() -> None:
        written(network, next(parts), tokenizer, how, tokens, ROWS)

    return decode


def _changed(rows: list[Encoded], tokenizer: Any, scale: Scale) -> int:
    """How many of 12 tables are answered otherwise when each is decoded alone, in float64."""
    some, tokens = rows[:: max(1, len(rows) // 12)][:12], TOKENS[scale.name]
    network = model().double()
    with ts.attach(network, ts.Prefix(length=LENGTH)):
        how = BeamSearch(beams=BEAMS)
        alone = written(network, some, tokenizer, how, tokens, 1)
        together = written(network, some, tokenizer, how, tokens, 12)
    return sum(a != b for a, b in zip(alone, together, strict=True))
