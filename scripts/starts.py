"""How a prefix and a soft prompt should begin on a pretrained decoder: each start compared on three corpora.

    python -m scripts.starts CORPUS --data DATA --model SMOLLM2      # sst2, trec or ag_news
    python -m scripts.starts --table                                 # results/starts.json from the finished runs

DATA holds sst2/, trec/ and ag_news/ as JSONL. Rows are cut by length and position: they are the same everywhere. Runs
go to runs/starts-CORPUS, can be stopped and begun again, and are written to results/starts.json as they finish.
"""

import argparse
import gzip
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LENGTH = 24
SIZES = {"train": 400, "dev": 80, "test": 160}
TRAINING = ("--steps", "40", "--batch-size", "8", "--eval-every", "20", "--halving", "--beyond", "0")
STARTS = {
    "prefix": ("noise", "zero", "tokens", "text", "demos", "demos-same"),
    "soft": ("normal", "vocabulary", "text", "demos"),
}
FEWER = {"prefix": ("noise", "tokens", "demos"), "soft": ("vocabulary", "demos")}
RESULT = Path("results/starts.json")


@dataclass(frozen=True)
class Corpus:
    """files: of training and test rows. words: label_name -> the word that stands for it. told: what the task is.

    seeds: how many. starts: of each method. longest: words of a row, so that a step takes a second of a CPU.
    """

    files: tuple[str, str]
    words: dict[str, str]
    template: str
    told: str
    seeds: int = 1
    longest: int = 25
    starts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: FEWER)


CORPORA = {
    "sst2": Corpus(
        ("sst2/train.jsonl.gz", "sst2/validation.jsonl.gz"),
        {"negative": "terrible", "positive": "great"},
        "{text} It was",
        "Below are sentences from reviews of films. Say of each one whether the reviewer thinks that the film was "
        "great or terrible.",
        seeds=2,
        starts=STARTS,
    ),
    "trec": Corpus(
        ("trec/train.jsonl.gz", "trec/test.jsonl.gz"),
        {one: one for one in ("description", "entity", "abbreviation", "human", "location", "number")},
        "{text} The answer is a",
        "Below are questions. Say of each one what its answer is: a description, an entity, an abbreviation, a human, "
        "a location or a number.",
    ),
    "ag_news": Corpus(
        ("ag_news/train_5k.jsonl.gz", "ag_news/test.jsonl.gz"),
        {"World": "world", "Sports": "sports", "Business": "business", "Sci/Tech": "technology"},
        "{text} Topic:",
        "Below are short pieces of news. Say of each one what its topic is: the world, sports, business or technology. "
        "Only one of them is right.",
        longest=35,
    ),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", choices=sorted(CORPORA))
    parser.add_argument("--data", type=Path, help="the folder of the corpora")
    parser.add_argument("--model", help="the folder of the model")
    parser.add_argument("--table", action="store_true", help="write the results of the finished runs")
    given = parser.parse_args()
    if given.corpus:
        if not (given.data and given.model):
            parser.error("a corpus needs --data and --model")
        _compare(given.corpus, given.data, given.model)
    _write()


def _compare(name: str, data: Path, model: str) -> None:
    corpus, run = CORPORA[name], _run(name)
    files = _cut(corpus, data, run.with_name(f"{run.name}-data"))
    arms = [_arm(corpus, method, start) for method, starts in corpus.starts.items() for start in starts]
    rows = [files["train"], "--dev", files["dev"], "--test", files["test"]]
    asked = ["--by", "words", "--template", corpus.template, "--forgetting", "none"]
    asked += ["--seeds", str(corpus.seeds), *TRAINING]
    command = ["tunescope", "compare", model, *rows, *asked, "--arms", "zero-shot", "demos:k=4", "lora:rank=1", *arms]
    subprocess.run([*command, "--out", str(run)], check=True)


def _arm(corpus: Corpus, method: str, start: str) -> str:
    words, _, positions = start.partition("-")
    more = f",text={_typed(corpus.told)}" if words == "text" else ""
    more += f",positions={positions}" if positions else ""
    return f"{method}-{start}={method}:length={LENGTH},init_from={words}{more}"


def _typed(text: str) -> str:
    return text.replace(",", "\\,")


def _run(name: str) -> Path:
    return Path("runs") / f"starts-{name}"


def _cut(corpus: Corpus, data: Path, out: Path) -> dict[str, str]:
    """Part -> its file: the first short rows of the corpus; dev lies behind train."""
    out.mkdir(parents=True, exist_ok=True)
    train, test = (_short(corpus, data / name) for name in corpus.files)
    first, second = SIZES["train"], SIZES["train"] + SIZES["dev"]
    found = {}
    for part, rows in {"train": train[:first], "dev": train[first:second], "test": test[: SIZES["test"]]}.items():
        path = out / f"{part}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        found[part] = str(path)
    return found


def _short(corpus: Corpus, path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    kept = {row["text"]: corpus.words[row["label_name"]] for row in rows if len(row["text"].split()) <= corpus.longest}
    return [{"text": text, "label": label} for text, label in kept.items()]


def _write() -> None:
    """What the finished runs found: arm, rate, scores by seed, what the loss began at."""
    found = {}
    for name in CORPORA:
        path = _run(name) / "results.json"
        if path.exists():
            results = json.loads(path.read_text(encoding="utf-8"))
            found[name] = {key: results[key] for key in ("command", "protocol", "model", "versions", "machine")}
            found[name]["arms"] = [_line(arm, results["task"]["metric"]) for arm in results["arms"]]
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _line(arm: dict[str, Any], metric: str) -> dict[str, Any]:
    kept = {key: arm[key] for key in ("name", "spec", "status", "learning_rate", "score", "parameters")}
    trials = [{key: one.get(key) for key in ("learning_rate", "dev", "loss", "status")} for one in arm["trials"]]
    tests = [(run["test"] or {}).get(metric) for run in arm["runs"]]
    return kept | {"trials": trials, "test": tests, "seconds": [run["seconds"] for run in arm["runs"]]}


if __name__ == "__main__":
    main()
