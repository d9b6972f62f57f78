"""Petrov et al. 2024, section 4: what a prefix can do to the attention of a model's first layer, on any model.

The paper looked at one head of LLaMA-7B and one input. Here: every head of the first self attention of every stack,
many inputs, two kinds of prefix, lengths and scales from a prefix that is hardly seen to one that takes all attention.
Both runs are of the whole model, the text at the same positions. Nothing is divided by 1 - share.

Behind the first layer inputs differ too, so the identity says nothing there; how far patterns moved is a column of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from tunescope.data.texts import texts
from tunescope.errors import UserError
from tunescope.models.family import family_names
from tunescope.models.load import load_model
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import SENTENCES, data_settings, model_settings
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._largest import largest

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

TITLE = "A prefix only scales the first layer's attention over the text, and adds a bias: the largest deviation"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), section 4 and its check on LLaMA-7B"
TAKES = ("quick", "seeds", "model", "data")

ARMS = ("prefix:length=1", "prefix:length=10", "inputs:length=1", "inputs:length=10")
SCALES = (0.3, 3.0, 30.0)  # of the noise that the prefix is; with them the share goes from about 0 to 1
RANDOM, GIVEN = ("float64", "float32", "float16"), ("float32", "float16")
BATCH, TOKENS = 8, 48
COLUMNS = (
    "pattern",
    "head output, of its largest entry",
    "pattern over the text alone",
    "attention on the prefix",
    "moved behind it, mean",
    "most",
)
NOTES = [
    "Pattern: A[text] against A_bare (1 - share). Head output: t against bias + (1 - share) t_bare. Over the text "
    "alone: the pattern renormalised in float64 from the scores, so that a share near 1 hides nothing. Whole-model "
    "runs; the largest over all heads and real positions of the first self attention of every stack.",
    "Moved behind it: total variation between bare and attached patterns over the text in all other attention modules, "
    "whose inputs differ. That is a measurement; no law is claimed there.",
    "The paper's two numbers are absolute, in half precision; 4.88e-4 is 2^-11, one step of half precision below 1.",
]


def settings(ask: Ask) -> Settings:
    size = {"arms": list(ARMS), "scales": list(SCALES), "seeds": ask.seeds or (3 if ask.model and not ask.quick else 1)}
    if ask.model is None:
        if ask.data is not None:
            raise UserError(f"{ask.name} reads texts with a given model only: add --model MODEL, or leave out --data.")
        return size | {"rows": 8 if ask.quick else 32, "model": None, "dtypes": RANDOM[:2] if ask.quick else RANDOM}
    size |= {"rows": 8 if ask.quick else 64, "tokens": TOKENS, "dtypes": GIVEN[:1] if ask.quick else GIVEN}
    if ask.data is not None:
        texts(ask.data, 1)
        size |= data_settings(ask.data)
    return size | model_settings(ask.model, ("decoder", "encoder", "encoder-decoder"), ask.name)


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    models = family_names() if settings["model"] is None else [""]
    found = [
        {"family": family, "dtype": dtype, "seed": seed}
        for dtype, family, seed in product(settings["dtypes"], models, range(settings["seeds"]))
    ]
    return [{key: value for key, value in unit.items() if value != ""} for unit in found]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    import torch

    from tunescope.attachment.attached import attach
    from tunescope.attachment.attention.record import record
    from tunescope.attachment.initial_artifacts import initialised
    from tunescope.methods.text_form import parse
    from tunescope.reproduce.recipes._first_layer import KEPT, compared

    model, batches = _model_and_batches(settings, unit)
    bare = [record(model, batch, *KEPT) for batch in batches]
    cases = []
    for arm, scale in product(settings["arms"], settings["scales"]):
        artifacts = initialised(model, parse(published.begun(arm)), None, unit["seed"])
        for tensor in artifacts[0].tensors.values():
            tensor.mul_(scale)
        with attach(model, *artifacts), torch.no_grad():
            attached = [record(model, batch, *KEPT) for batch in batches]
        cases.append({"arm": arm, "scale": scale} | compared(bare, attached, [_real(batch) for batch in batches]))
    return {"cases": cases, "rows": sum(len(batch["input_ids"]) for batch in batches)}


def table(settings: Settings, found: Found) -> Table:
    rows: list[tuple[str, list[Cell]]] = []
    for label in dict.fromkeys(_label(unit) for unit, _ in found):
        cases = [case for unit, outcome in found if _label(unit) == label for case in outcome["cases"]]
        first = [each for case in cases for each in case["first"].values()]
        moved = [each for case in cases for each in case["moved"].values()]
        least, most = -largest(-each["share_least"] for each in first), largest(each["share_most"] for each in first)
        share = f"{least:.1g} to {most:.7g}"
        cells = [
            _most(each["pattern"] for each in first),
            _most(each["output"] / each["entry"] for each in first),
            _most(each["alone"] for each in first),
            Cell(text=share),
            Cell((sum(each[0] for each in moved) / len(moved),)) if moved else Cell(),
            _most(each[1] for each in moved),
        ]
        rows.append((label, cells))
    if settings["model"] is not None:
        rows += _other_modules(
            [case for unit, outcome in found if unit["dtype"] == GIVEN[0] for case in outcome["cases"]]
        )
    rows.append(("LLaMA-7B, half, head 12, one input", [Cell(paper="4.88e-4"), Cell(paper="9.16e-5")]))
    return Table(COLUMNS, rows, NOTES)


def _other_modules(cases: list[dict[str, Any]]) -> list[tuple[str, list[Cell]]]:
    """One row for each attention module that the laws are not about."""
    rows = []
    for name in cases[0]["moved"]:
        means, mosts = zip(*(case["moved"][name] for case in cases), strict=True)
        rows.append((name, [*[Cell()] * 4, Cell((sum(means) / len(means),)), Cell((largest(mosts),))]))
    return rows


def _label(unit: dict[str, Any]) -> str:
    return f"{unit.get('family', 'this model')}, {unit['dtype']}"


def _most(values: Iterable[float]) -> Cell:
    found = largest([*values, 0.0])
    return Cell((found,), digits=3 if found else 0)


def _model_and_batches(settings: Settings, unit: dict[str, Any]) -> tuple[Any, list[dict[str, Tensor]]]:
    """The model in the unit's precision, and its inputs in batches, padded on the right."""
    import torch

    from tunescope.lab.worlds.families import VOCAB, random_model
    from tunescope.tasks.answers.batches import pad_id

    dtype = getattr(torch, unit["dtype"])
    if settings["model"] is None:
        model = random_model(unit["family"], seed=unit["seed"], dtype=dtype)
        g = torch.Generator().manual_seed(unit["seed"])
        lengths = torch.randint(1, 13, (settings["rows"],), generator=g).tolist()
        rows = [torch.randint(3, VOCAB, (length,), generator=g).tolist() for length in lengths]
        return model, _batches(model, rows, model.config.pad_token_id)
    model, tokenizer = load_model(settings["model"])
    given = texts(settings["data"], settings["rows"]) if "data" in settings else SENTENCES[: settings["rows"]]
    rows = [tokenizer(text)["input_ids"][: settings["tokens"]] for text in given]
    return model.to(dtype).eval(), _batches(model, rows, pad_id(tokenizer))


def _batches(model: PreTrainedModel, rows: list[list[int]], pad: int) -> list[dict[str, Tensor]]:
    import torch

    from tunescope.tasks.answers.batches import padded

    batches = []
    for start in range(0, len(rows), BATCH):
        ids, mask = padded([row for row in rows[start : start + BATCH] if row], pad, torch.device("cpu"), left=False)
        batches.append({"input_ids": ids, "attention_mask": mask})
        if model.config.is_encoder_decoder:
            batches[-1] |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
    return batches


def _real(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    mask = batch["attention_mask"].bool()
    return {"encoder": mask, "decoder": mask}
