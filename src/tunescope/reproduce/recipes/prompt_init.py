"""How a soft prompt begins, and whether what it began as can still be read in it.

Uniform noise, tokens of the vocabulary, or the words of the labels. The last columns are about reading: of the tokens
of the labels, how many are among the five nearest of some virtual token, before and after training. Below the table are
the tokens that the trained prompt is nearest to. `tunescope probe neighbours` on a line's artifact has all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.models.anatomy import anatomy
from tunescope.models.load import load_model
from tunescope.probes.looks.neighbours import neighbours
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Found, Settings
from tunescope.system import run_folder

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

TITLE = "Soft prompts that begin as noise, as words, as the labels, and what can be read in them"
SOURCE = "Lester et al. 2021 (arXiv:2104.08691), section 3.2 and figure 3b; section 7 (class labels persist)"
TAKES = corpus_table.TAKES
KEEPS = True

NEAREST = 5
SHOWN = 12
LENGTHS = {"tuned": 20, "paper": 100}


def settings(ask: Ask) -> Settings:
    length = LENGTHS[ask.protocol]
    made = corpus_table.settings(ask, (), published.course(ask, published.PROMPT_TUNING), published.rows(ask))
    labels = sorted({str(row["target"]) for row in corpus_table.parts(made)["train"]})
    if len(labels) > length:
        raise corpus_table.no_labels(ask.name, len(labels), length)
    begun = {
        "uniform noise": "init_from=uniform",
        "sampled vocabulary": "init_from=vocabulary",
        "class labels": f"init_from=labels,text={'/'.join(labels)}",
    }
    lines = [Line(label, f"soft:length={length},{how}") for label, how in begun.items()]
    return made | {"labels": labels, "lines": corpus_table.kept(ask, lines, made["course"]["network"])}


worlds, units = corpus_line.worlds, corpus_table.units


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    found = corpus_line.work(settings, unit, folder)
    return found | ({"read": _read(settings, unit["arm"], folder)} if found["status"] == "done" else {})


def _read(settings: Settings, arm: str, folder: Path) -> dict[str, Any]:
    """The share of the labels' tokens near a virtual token, as the prompt begins and in the best run's; its "words"."""
    from tunescope.attachment.artifact_folder import load
    from tunescope.attachment.attached import attach
    from tunescope.methods.text_form import parse

    model, words = load_model(settings["model"])
    asked = [words(label, add_special_tokens=False)["input_ids"] for label in settings["labels"]]
    labels = {token for ids in asked for token in ids}
    table = anatomy(model).table.weight.detach()
    found: dict[str, Any] = {}
    runs = run_folder.read_results(folder / "run")["arms"][0]["runs"]
    seed = max(runs, key=lambda run: run["dev"])["seed"]  # whose artifact is kept
    for name, artifacts in (("begun", parse(arm)), ("trained", load(folder / "run" / "best"))):
        with attach(model, *artifacts, tokenizer=words, seed=seed) as tuned:
            rows = next(iter(tuned.named_parameters().values())).detach()
        found[name] = _share(rows, table, labels)
    return found | {"words": _words(rows, table, words)}


def _share(rows: Tensor, table: Tensor, labels: set[int]) -> float:
    near = set(neighbours(rows, table, NEAREST).ids.flatten().tolist())
    return len(labels & near) / len(labels)


def _words(rows: Tensor, table: Tensor, tokenizer: PreTrainedTokenizerBase) -> list[tuple[str, float]]:
    """The token nearest to each virtual token and its cosine; those that are nearest of all."""
    near = neighbours(rows, table, 1)
    pairs = zip(tokenizer.convert_ids_to_tokens(near.ids[:, 0].tolist()), near.cosine[:, 0].tolist(), strict=True)
    return sorted(pairs, key=lambda pair: -pair[1])[:SHOWN]


def table(settings: Settings, found: Found) -> Table:
    whole = corpus_line.table(settings, found)
    rows = []
    for (label, cells), (_, outcome) in zip(whole.rows, found, strict=True):
        read = outcome.get("read", {})
        told = [Cell((read[name],), digits=2) if name in read else Cell(text="none") for name in ("begun", "trained")]
        rows.append((label, [*cells, *told]))
    columns = (*whole.columns, "labels near it at first", "and when trained")
    note = (
        f"Near it: the share of the labels' tokens among the {NEAREST} nearest, by cosine, of some virtual token; of "
        "the best seed."
    )
    nearest = [
        _nearest_tokens(line["label"], outcome) for line, (_, outcome) in zip(settings["lines"], found, strict=True)
    ]
    return Table(columns, rows, [*whole.notes, note, *filter(None, nearest)])


def _nearest_tokens(label: str, outcome: dict[str, Any]) -> str:
    words = ", ".join(f"{word} {cosine:.2f}" for word, cosine in outcome.get("read", {}).get("words", ()))
    return words and f"{label}: the tokens nearest to a virtual token each, and their cosines: {words}."
