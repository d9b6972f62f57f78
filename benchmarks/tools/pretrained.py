"""A pretrained model and real rows for whole commands, where the environment names them; else small random ones.

TUNESCOPE_PRETRAINED is a folder with a decoder, TUNESCOPE_ROWS one with train.jsonl, dev.jsonl and test.jsonl of rows
with a text and a label_name, each plain or gzipped (validation.jsonl for dev).
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.tools.models import Scale, gpt2

MODEL, DATA = "TUNESCOPE_PRETRAINED", "TUNESCOPE_ROWS"
WORDS = ["film", "plot", "actor", "scene", "music", "story", "light", "slow", "grand", "dull", "bright", "long"]
LABELS = {"negative": "terrible", "positive": "great"}
ASKED = ("--label-field", "label_name", "--template", "{text} It was", "--words", "negative=terrible", "positive=great")
ROOT = Path(__file__).parents[2]


def missing(*names: str) -> str | None:
    """Why the whole cannot run here."""
    left = [name for name in names if not os.environ.get(name)]
    return f"{' and '.join(left)} not set; see benchmarks/tools/pretrained.py" if left else None


def model(scale: Scale, folder: Path) -> tuple[str, str]:
    """A decoder's folder, and what it is called: that of the environment, or a random one of the scale's shape."""
    if scale.name != "tiny" and (named := os.environ.get(MODEL)):
        return named, Path(named).name
    gpt2(scale).save_pretrained(folder)
    known = [*WORDS, *LABELS.values(), "It", "was"]
    known += [f"w{number}" for number in range(len(known), scale.gpt2[-1])]
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(known)}, unk_token=known[-1]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token=known[-2], pad_token=known[-2]).save_pretrained(folder)
    return str(folder), "random, of GPT-2's shape"


def rows(scale: Scale, folder: Path, counts: Mapping[str, int], longest: int) -> dict[str, str]:
    """Part -> a file of so many rows of at most `longest` words, drawn without regard to their labels."""
    found = {}
    for part, count in counts.items():
        of_data = scale.name != "tiny" and os.environ.get(DATA)
        every = _read(Path(of_data), part) if of_data else _made(part, count)
        short = [row for row in every if len(row["text"].split()) <= longest]
        drawn = Random(part).sample(short, count)
        found[part] = str(folder / f"{part}.jsonl")
        Path(found[part]).write_text("".join(json.dumps(row) + "\n" for row in drawn))
    return found


def _read(folder: Path, part: str) -> list[dict[str, Any]]:
    for name in (part, "validation" if part == "dev" else part):
        for path in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
            if path.exists():
                read = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
                return [json.loads(line) for line in read.decode().splitlines()]
    raise FileNotFoundError(f"{folder} has no {part}.jsonl")


def _made(part: str, count: int) -> list[dict[str, Any]]:
    draw, labels = Random(f"{part} made"), list(LABELS)
    return [
        {"text": " ".join(draw.choices(WORDS, k=8)) + f" w{100 + index}", "label_name": labels[index % 2]}
        for index in range(count)
    ]


def cpu_seconds(words: Sequence[str]) -> float:
    """Of a whole command of tunescope, with one thread."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    given = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tunescope", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=given, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
