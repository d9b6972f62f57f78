"""A corpus with labels as recipes ask it in words: its template and label words, its rows in a folder, and a bench."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tunescope.data.corpus_name import parsed
from tunescope.data.read import sha256
from tunescope.errors import UserError
from tunescope.reproduce import corpus_line, corpus_table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import classification_settings, fields_named
from tunescope.reproduce.recipe import Settings
from tunescope.system.label_pairs import pairs
from tunescope.system.machine import default_device
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import data_paths

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench


class Asked(NamedTuple):
    """How a corpus is asked; words {}: each label is its own."""

    template: str
    words: Mapping[str, str]


def task(ask: Ask, made: Settings, published: Mapping[str, Asked], otherwise: str) -> dict[str, Any]:
    """The fields of the classification: as typed, else as published of the corpus, else `otherwise` and the labels.

    Raises:
        UserError: the template names a field that the rows lack.
    """
    corpus = made["data"].partition(":")[0]
    usual = published.get(corpus, Asked(otherwise, {}))
    template = usual.template if ask.template is None else ask.template
    words = pairs("--words", ask.words) if ask.words else dict(usual.words)
    fields_named(ask, template, corpus_table.parts(made)["train"][0])
    return {"kind": "classification", "template": template} | ({"words": words} if words else {})


def given(ask: Ask, data: str, published: Mapping[str, Asked]) -> Settings:
    """{"data", "sha256", "task", ...} of a file or a corpus, of which each part has its hash.

    It is asked as typed, else by the paper's protocol as published; UserError where that is neither.
    """
    parts, corpus = data_paths(data), parsed(data)
    hashes = {part: sha256(path) for part, path in parts.items()}
    made = classification_settings(ask, parts["train"])
    found = {"data": data, "sha256": hashes if len(hashes) > 1 else hashes["train"]} | made
    if ask.protocol != "paper":
        return found
    if corpus is not None and corpus.name in published:
        usual = published[corpus.name]
        return found | {"task": {"template": usual.template, "words": dict(usual.words)} | made["task"]}
    if ask.template is None:
        raise UserError(
            f"{ask.name} --protocol paper --data {data}: templates are published of {', '.join(published)}. Give one "
            "of these, as --data sst2:FOLDER, or --template and --words of your own."
        )
    return found


def files(settings: Settings, folder: Path, *, k_shot: bool = False) -> dict[str, str]:
    """The recipe's rows, written to the folder; with k_shot no development rows, which are drawn from the others."""
    given = corpus_table.parts(settings)
    kept = {part: rows for part, rows in given.items() if part != "dev" or not k_shot}
    return corpus_line.written(kept, folder / "data")


def lost(what: str, reasons: Mapping[int, str], of: int) -> str:
    """Why a line has no score: of each draw or seed (`what`) that has none, or once for all."""
    if len(reasons) == of and len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{what} {seed}: {reason}" for seed, reason in reasons.items())


def bench(settings: Settings, model: str, data: Mapping[str, str], /, **plan: Any) -> "Bench":
    """A model, which may be another than the recipe's, on rows as `files` has them; plan: more of its fields."""
    from tunescope.trial.open import open_bench

    return open_bench(Plan(model=model, data=data, task=settings["task"], device=str(default_device()), **plan))
