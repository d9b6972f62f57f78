"""The metrics of each corpus on 5,000 outputs with three references each: processor time, Java's too; METEOR apart."""

from __future__ import annotations

import importlib
import os
from random import Random

from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.models import Scale
from tunescope.data import corpus_name
from tunescope.data.metric import find_metric, metric_names
from tunescope.data.scores import aggregate, statistics
from tunescope.errors import UserError

ROWS = {"full": 5000, "tiny": 20}
REFERENCES, WORDS, VOCABULARY = 3, 22, 1500
APART = {"meteor": 500}  # rows that it is measured on
TARGET = 10.0


def run(scale: Scale) -> Result:
    outputs, references = texts(ROWS[scale.name])
    took: dict[str, float | str] = {}
    for name in metric_names():
        n_rows = min(APART.get(name, len(outputs)), len(outputs))
        took[name] = _seconds(name, outputs[:n_rows], references[:n_rows])
    settings = {
        "outputs": len(outputs),
        "references of each": REFERENCES,
        "words of each": WORDS,
        "seconds": {name: took[name] for name in took if name not in APART},
        "seconds, rows": {name: [took[name], min(rows, len(outputs))] for name, rows in APART.items()},
    }
    return Result((), [_check(corpora, took) for corpora in _sets().items()], settings)


def _sets() -> dict[tuple[str, ...], list[str]]:
    """The metrics that corpora are scored by -> these corpora."""
    found: dict[tuple[str, ...], list[str]] = {}
    for corpus in corpus_name.names():
        asked = getattr(importlib.import_module(f"tunescope.data.corpora.{corpus}"), "METRICS", ("exact_match",))
        found.setdefault(tuple(name for name in asked if name not in APART), []).append(corpus)
    return found


def _check(one: tuple[tuple[str, ...], list[str]], took: dict[str, float | str]) -> Check:
    """Of what could be measured here; why the others could not stands among the settings."""
    asked, corpora = one
    measured = {name: value for name in asked if isinstance(value := took[name], float)}
    return Check(f"seconds for {', '.join(measured)} ({', '.join(corpora)})", round(sum(measured.values()), 2), TARGET)


def texts(n_rows: int) -> tuple[list[str], list[list[str]]]:
    """Made-up sentences; an output is one of its references with words dropped, swapped and replaced."""
    random = Random(0)
    words = [f"{random.choice('bcdfgklmnprst')}{random.choice('aeiou')}{n}" for n in range(VOCABULARY)]
    shares = [1 / (n + 1) for n in range(VOCABULARY)]

    def sentence() -> list[str]:
        return random.choices(words, shares, k=WORDS)

    outputs, references = [], []
    for _ in range(n_rows):
        own = [sentence() for _ in range(REFERENCES)]
        said = [random.choice(words) if random.random() < 0.2 else word for word in own[0] if random.random() < 0.9]
        references.append([f"{' '.join(one).capitalize()}, so it is." for one in own])
        outputs.append(f"{' '.join(said).capitalize()}.")
    return outputs, references


def _seconds(name: str, outputs: list[str], references: list[list[str]]) -> float | str:
    """Of processor time, Java's own process counted; or why it could not be measured."""
    try:
        find_metric(name).needs()
    except UserError as refusal:
        return str(refusal)
    start = sum(os.times()[:4])
    aggregate(name, statistics(name, outputs, references))
    return round(sum(os.times()[:4]) - start, 2)
