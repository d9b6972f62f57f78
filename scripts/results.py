"""Make the committed results anew: cut the data, run the comparison, keep its results.json.

    python -m scripts.results sst2 --data DATA --model MINILM          # all-MiniLM-L6-v2, a BERT encoder
    python -m scripts.results trec --data DATA --model MINILM
    python -m scripts.results e2e  --data DATA --model STORIES260K     # a 260,032-parameter Llama
    python -m scripts.results sst2-smollm2 --data DATA --model SMOLLM2     # SmolLM2-135M, a Llama of 30 layers
    python -m scripts.results trec-smollm2 --data DATA --model SMOLLM2     # two budgets: trec-, ag_news-
    python -m scripts.results sst2-methods --data DATA --model SMOLLM2     # all kinds of method: trec-, ag_news-, rte-
    python -m scripts.results sst2-methods-16 --data DATA --model SMOLLM2  # the same from 16 rows of a label

DATA holds sst2/, trec/, ag_news/, rte/ and e2e/ as JSONL (fields: text and label_name; table and text). Cuts are by
position: they are the same everywhere. Runs go to runs/NAME and can be stopped and begun again; RESULT goes to
results/NAME.json. Learning rates and starts are those that `tunescope compare` has by itself; so are seeds, but for
those of all kinds of method, which are three.

    python -m scripts.results sst2-smollm2 --told-again               # nothing is run: scores that stand, told anew

gives a committed result the verdict and the page that today's rule and words make of its scores. Of a recipe's result,
results/NAME.json, it makes the table anew from its pieces.
"""

import argparse
import gzip
import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tunescope.methods.text_form import parse
from tunescope.report import page
from tunescope.report.verdict.verdict import decide
from tunescope.reproduce.recipe import find
from tunescope.reproduce.show import as_json
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
METHODS = (
    *("zero-shot", "demos:k=4", "similar=demos:k=1,choose=similar", "label_words", "soft:length=24"),
    *("noise=prefix:init_from=noise", "prefix", "lora", "adapter", "mam=prefix+adapter:placement=parallel,scale=4.0"),
    *("norms=full:only=*norm*", "full"),
)
SIZED = ("zero-shot", "soft:length=24", "prefix", "lora", "adapter")
DECODER_ARMS = ("zero-shot", "soft", "prefix", "infix", "lora", "adapter", "full")
TEXTS = ("text", "premise", "hypothesis")  # the fields of a row whose words count
LABELLED = ("--text-field", "text", "--label-field", "label_name")


@dataclass(frozen=True)
class Real:
    """Rows: file under DATA, first and last row. The last `dev` rows of the shuffled training file are for choosing.

    longest: the words of a row, where longer ones are left out. chosen_by: rows of `dev`, where the data has no part of
    its own for choosing. more_test: rows that stand behind those of `test`.
    """

    train: tuple[str, int]
    test: tuple[str, int]
    dev: tuple[str, int] | None
    options: tuple[str, ...]
    arms: tuple[str, ...]
    budgets: tuple[int, ...]
    longest: int | None = None
    chosen_by: int = 200
    more_test: tuple[str, int] | None = None


@dataclass(frozen=True)
class Corpus:
    """A corpus as SmolLM2-135M is asked for its labels."""

    train: tuple[str, int]
    test: tuple[str, int]
    label: str
    template: str
    words: str
    longest: int

    def methods(self, *more: str) -> Real:
        """Every kind of method at one budget, 100 steps each, products in bfloat16."""
        schedule = ("--steps", "100", "--batch-size", "8", "--eval-every", "25", "--seeds", "3", "--halving")
        options = (*self._asked(), *schedule, "--precision", "bfloat16", *more)
        return Real(self.train, self.test, None, options, METHODS, (276_480,), self.longest, 100)

    def at_budgets(self, *budgets: int) -> Real:
        """The kinds of method that have a size, 60 steps each, in float32."""
        schedule = ("--steps", "60", "--batch-size", "8", "--eval-every", "20", "--seeds", "3", "--halving")
        options = (*self._asked(), *schedule)
        return Real(self.train, self.test, None, options, SIZED, budgets, self.longest, 100)

    def _asked(self) -> tuple[str, ...]:
        return "--label-field", self.label, "--by", "words", "--words", self.words, "--template", self.template


FEW = ("--k-shot", "16")
CORPORA = {
    "sst2": Corpus(
        ("sst2/train.jsonl.gz", 4000),
        ("sst2/validation.jsonl.gz", 540),
        "label_name",
        "{text} It was",
        "negative=terrible,positive=great",
        25,
    ),
    "trec": Corpus(
        ("trec/train.jsonl.gz", 5452),
        ("trec/test.jsonl.gz", 500),
        "label_name",
        "Question: {text} Answer type:",
        "abbreviation=abbreviation,description=description,entity=entity,human=person,location=location,number=number",
        40,
    ),
    "ag_news": Corpus(
        ("ag_news/train_5k.jsonl.gz", 5000),
        ("ag_news/test.jsonl.gz", 600),
        "label_name",
        "{text} Topic:",
        "World=world,Sports=sports,Business=business,Sci/Tech=technology",
        40,
    ),
    "rte": Corpus(
        ("rte/train.jsonl.gz", 2490),
        ("rte/validation.jsonl.gz", 277),
        "label",
        "{premise} Question: {hypothesis} True or False? Answer:",
        "entailment=True,not_entailment=False",
        60,
    ),
}


REAL = {
    "sst2": Real(
        train=("sst2/train.jsonl.gz", 4000),
        test=("sst2/validation.jsonl.gz", 872),
        dev=None,
        options=(*LABELLED, "--steps", "100", "--batch-size", "16", "--eval-every", "50", "--max-seeds", "48"),
        arms=ENCODER_ARMS,
        budgets=(16_000, 64_000),
        more_test=("sst2/test.jsonl.gz", 1821),
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
for name in ("trec", "ag_news"):
    REAL[f"{name}-smollm2"] = CORPORA[name].at_budgets(57_600, 276_480)
for name, corpus in CORPORA.items():
    REAL[f"{name}-methods"], REAL[f"{name}-methods-16"] = corpus.methods(), corpus.methods(*FEW)


def rows(data: Path, part: tuple[str, int], longest: int | None) -> list[str]:
    with gzip.open(data / part[0], "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in itertools.islice(file, part[1])]
    texts = [[row[name] for name in TEXTS if name in row] for row in found]
    kept = [row for row, text in zip(found, texts, strict=True) if longest is None or words_of(text) <= longest]
    return [json.dumps(row, ensure_ascii=False) for row in kept]


def words_of(texts: list[str]) -> int:
    return sum(len(text.split()) for text in texts)


def cut(data: Path, real: Real, folder: Path) -> dict[str, Path]:
    """train.jsonl, dev.jsonl and test.jsonl in the folder; every n-th training row is for choosing."""
    parts = {"train": rows(data, real.train, real.longest), "test": rows(data, real.test, real.longest)}
    if real.more_test is not None:
        parts["test"] += rows(data, real.more_test, real.longest)
    if real.dev is not None:
        parts["dev"] = rows(data, real.dev, real.longest)
    else:
        whole, every = list(dict.fromkeys(parts["train"])), len(parts["train"]) // real.chosen_by
        parts["dev"] = whole[::every][: real.chosen_by]
        parts["train"] = [row for row in whole if row not in set(parts["dev"])]
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in parts.items():
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return {name: folder / f"{name}.jsonl" for name in parts}


def asked(name: str, data: Path, model: str, run: Path, *more: str, arms: Sequence[str] = ()) -> None:
    """The comparison in the folder, begun or gone on with. arms: these alone, in the place of its own."""
    real = REAL[name]
    paths = cut(data, real, Path("runs") / f"{name}-data")
    command = ["tunescope", "compare", model, str(paths["train"])]
    chosen_by = [] if "--k-shot" in real.options else ["--dev", str(paths["dev"])]  # few rows: as many others
    options = [one for one in real.options if not arms or one != "--halving"]  # of what is trained
    command += [*chosen_by, "--test", str(paths["test"]), *options, "--arms", *(arms or real.arms)]
    command += ["--budget", *map(str, real.budgets), "--out", str(run), *more]
    subprocess.run(command, check=True)


def tell_again(path: Path) -> None:
    """Raises SystemExit for a result of the earlier procedure, whose runs today's rule does not make one of today."""
    results = sealed_json.read(path, may_lack=True)
    if "recipe" in results:
        pieces = [(one["unit"], one["outcome"]) for one in results["units"]]
        results["table"] = as_json(find(results["recipe"]).table(results["settings"], pieces))
        sealed_json.put(path, results)
        return
    if "looks" not in results["protocol"]:
        raise SystemExit(f"{path} was made by an earlier procedure: run it again, with --data and --model.")
    for arm in results["arms"]:  # some parameters by name were once counted as full tuning
        if arm["group"] == "full" and arm["spec"].startswith("full:") and not parse(arm["spec"])[0].counted:
            arm["group"] = "delta"
    results["verdict"] = decide(results)
    sealed_json.put(path, results)
    page.write(results, path.with_suffix(".html"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--told-again", action="store_true")
    given = parser.parse_args()
    if given.told_again:
        tell_again(Path("results") / f"{given.name}.json")
        return
    if given.name not in REAL:
        parser.error(f"{given.name} is none of: {', '.join(REAL)}.")
    if given.data is None or given.model is None:
        parser.error("--data and --model are needed, or --told-again.")
    run = Path("runs") / given.name
    asked(given.name, given.data, given.model, run, "--workers", str(given.workers))
    shutil.copy(run / "results.json", Path("results") / f"{given.name}.json")
    shutil.copy(run / "report.html", Path("results") / f"{given.name}.html")


if __name__ == "__main__":
    main()
