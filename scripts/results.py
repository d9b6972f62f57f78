"""Make the committed results anew: cut the data, run the comparison, keep its results.json.

    python -m scripts.results sst2 --data DATA --model MINILM          # all-MiniLM-L6-v2, a BERT encoder
    python -m scripts.results trec --data DATA --model MINILM
    python -m scripts.results e2e  --data DATA --model STORIES260K     # a 260,032-parameter Llama
    python -m scripts.results sst2-smollm2 --data DATA --model SMOLLM2 # SmolLM2-135M, a Llama of 30 layers

DATA holds sst2/, trec/ and e2e/ as JSONL (fields: text and label_name; table and text). Cuts are by position: they are
the same everywhere. Runs go to runs/NAME and can be stopped and begun again; RESULT goes to results/NAME.json. Learning
rates, starts and seeds are those that `tunescope compare` has by itself.

    python -m scripts.results sst2-smollm2 --told-again               # nothing is run: scores that stand, told anew

gives a committed result the verdict and the page that today's rule and words make of its scores.
"""

import argparse
import gzip
import itertools
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tunescope.report import page
from tunescope.report.verdict.verdict import decide
from tunescope.system import sealed_json

ENCODER_ARMS = (
    "head",
    "prefix",
    "lora",
    "adapter",
    "prefix+adapter:placement=parallel,scale=4.0",
    "bias",
    "full",
)
DECODER_ARMS = ("zero-shot", "soft", "prefix", "infix", "lora", "adapter", "full")
LABELLED = ("--text-field", "text", "--label-field", "label_name")


@dataclass(frozen=True)
class Real:
    """Rows: file under DATA, first and last row. The last `dev` rows of the shuffled training file are for choosing.

    longest: the words of a row, where longer ones are left out.
    """

    train: tuple[str, int]
    test: tuple[str, int]
    dev: tuple[str, int] | None
    options: tuple[str, ...]
    arms: tuple[str, ...]
    budgets: tuple[int, ...]
    longest: int | None = None


REAL = {
    "sst2": Real(
        train=("sst2/train.jsonl.gz", 4000),
        test=("sst2/validation.jsonl.gz", 872),
        dev=None,
        options=(*LABELLED, "--steps", "100", "--batch-size", "16", "--eval-every", "50"),
        arms=ENCODER_ARMS,
        budgets=(16_000, 64_000),
    ),
    "trec": Real(
        train=("trec/train.jsonl.gz", 5452),
        test=("trec/test.jsonl.gz", 500),
        dev=None,
        options=(*LABELLED, "--steps", "150", "--batch-size", "16", "--eval-every", "50"),
        arms=ENCODER_ARMS,
        budgets=(16_000, 64_000),
    ),
    "e2e": Real(
        train=("e2e/train.jsonl.gz", 42061),
        test=("e2e/test.jsonl.gz", 2000),
        dev=("e2e/validation.jsonl.gz", 250),
        options=(
            *("--task", "generation", "--input-field", "table", "--target-field", "text", "--metric", "bleu"),
            *("--template", "{table}\n", "--steps", "200", "--batch-size", "8", "--eval-every", "100"),
        ),
        arms=DECODER_ARMS,
        budgets=(4_096, 16_384),
    ),
    "sst2-smollm2": Real(
        train=("sst2/train.jsonl.gz", 4000),
        test=("sst2/validation.jsonl.gz", 872),
        dev=None,
        options=(
            *(*LABELLED, "--by", "words", "--words", "negative=terrible,positive=great", "--template", "{text} It was"),
            *("--steps", "60", "--batch-size", "8", "--eval-every", "20"),
        ),
        arms=("zero-shot", "demos:k=4", "soft:length=24", "prefix", "lora"),
        budgets=(57_600, 276_480),
        longest=25,
    ),
}
DEV_ROWS = 200  # cut from the training rows where the data has no part of its own for choosing


def rows(data: Path, part: tuple[str, int], longest: int | None) -> list[str]:
    with gzip.open(data / part[0], "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in itertools.islice(file, part[1])]
    kept = [row for row in found if longest is None or len(row["text"].split()) <= longest]
    return [json.dumps(row, ensure_ascii=False) for row in kept]


def cut(data: Path, real: Real, folder: Path) -> dict[str, Path]:
    """train.jsonl, dev.jsonl and test.jsonl in the folder; every n-th training row is for choosing."""
    parts = {"train": rows(data, real.train, real.longest), "test": rows(data, real.test, real.longest)}
    if real.dev is not None:
        parts["dev"] = rows(data, real.dev, real.longest)
    else:
        whole, every = list(dict.fromkeys(parts["train"])), len(parts["train"]) // DEV_ROWS
        parts["dev"] = whole[::every][:DEV_ROWS]
        parts["train"] = [row for row in whole if row not in set(parts["dev"])]
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in parts.items():
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return {name: folder / f"{name}.jsonl" for name in parts}


def tell_again(path: Path) -> None:
    """Raises SystemExit for a result of the earlier procedure, whose runs today's rule does not make one of today."""
    results = json.loads(path.read_text("utf-8"))
    if "looks" not in results["protocol"]:
        raise SystemExit(f"{path} was made by an earlier procedure: run it again, with --data and --model.")
    results["verdict"] = decide(results)
    sealed_json.put(path, results)
    page.write(results, path.with_suffix(".html"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=REAL)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--told-again", action="store_true")
    given = parser.parse_args()
    if given.told_again:
        tell_again(Path("results") / f"{given.name}.json")
        return
    if given.data is None or given.model is None:
        parser.error("--data and --model are needed, or --told-again.")
    real, run = REAL[given.name], Path("runs") / given.name
    paths = cut(given.data, real, Path("runs") / f"{given.name}-data")
    command = ["tunescope", "compare", given.model, str(paths["train"])]
    command += ["--dev", str(paths["dev"]), "--test", str(paths["test"]), *real.options]
    command += ["--arms", *real.arms, "--budget", *map(str, real.budgets), "--out", str(run)]
    command += ["--workers", str(given.workers)]
    subprocess.run(command, check=True)
    shutil.copy(run / "results.json", Path("results") / f"{given.name}.json")
    shutil.copy(run / "report.html", Path("results") / f"{given.name}.html")


if __name__ == "__main__":
    main()
