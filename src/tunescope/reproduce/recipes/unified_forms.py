"""He et al. 2022, section 3 and Table 1: every method as a change of h, its form printed from the method itself.

What a method says it adds (`formula` in its own file) is computed as it stands, by an interpreter of formulas and an
attention written out, and compared with what the attached method does: whole models, every site, float64. A prefix says
that it is a gated multi-head parallel adapter, the paper's identity (section 3.1); its rows by kind of attention are
that identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.models.family import family_names
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._largest import largest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TITLE = "What each method adds, where and how, said by its own file, and how far it is from what it says"
SOURCE = "He et al. 2022 (arXiv:2110.04366), sections 3.1 to 3.3 and Table 1"
TAKES = ()

COLUMNS = ("change of h", "insertion", "at", "new h", "families", "largest deviation", "largest change")
BOTTLENECK, PARALLEL = "ReLU(h W_down) W_up", "placement=parallel"
ADAPTER = (BOTTLENECK, "parallel", "attn / ffn", "h + change")
HEADS = (BOTTLENECK, "parallel", "head attn", "h + change")
IDENTITY = ("prefix = gated multi-head adapter", "prefix:length=5")
# The paper's row, the arm that it is here, and the paper's four dimensions of it.
ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "prefix-tuning",
        IDENTITY[1],
        ("softmax(x W_q P_k^T) P_v", "parallel", "head attn", "(1 - λ) h + λ change"),
    ),
    ("adapter", "adapter:bottleneck=4,sites=attn,ffn", (BOTTLENECK, "sequential", "attn / ffn", "h + change")),
    ("LoRA", "lora:rank=2,alpha=4.0", ("x W_down W_up", "parallel", "attn key / val", "h + s change")),
    ("parallel adapter, attn", f"adapter:bottleneck=4,{PARALLEL},sites=attn.heads", ADAPTER),
    ("parallel adapter, ffn", f"adapter:bottleneck=4,{PARALLEL}", ADAPTER),
    ("multi-head parallel adapter", "adapter:bottleneck=4,placement=multi-head,sites=attn.heads", HEADS),
    ("scaled parallel adapter", f"adapter:bottleneck=4,{PARALLEL},scale=4.0", (*ADAPTER[:3], "h + s change")),
    ("parallel adapter, learned scale", f"adapter:bottleneck=4,{PARALLEL},scale=learned", ()),
    ("prefix without its gate", "adapter:bottleneck=5,placement=multi-head,sites=attn.heads,activation=softmax", ()),
    ("MAM adapter", f"prefix:length=5+adapter:bottleneck=4,{PARALLEL},scale=4.0", ()),
    ("prompt tuning", "soft:length=4", ()),
)
NOTES = [
    "Change of h and new h: formulas over h (what leaves the place), x (what enters it), q (the layer's query) and the "
    "method's own tensors; [i] is head i, score the model's own (q k / sqrt(d) in most), share the prefix's part of "
    "the attention, per query and head: the paper's λ. In brackets the paper's Table 1.",
    "Deviation: attached against the formulas computed as they stand in a written-out attention, at every site of a "
    "random two-layer model and at its output, float64, the method's tensors away from where they start. Change: "
    "attached against bare. Places are those of `tunescope.models.sites` in both.",
    "attn.heads is before the output projection W_O, attn and ffn after the block's last map. As coded by the authors, "
    "the parallel adapter at attention is at attn.heads and the sequential one at attn, both behind a layer norm "
    "(norm=in); LoRA at attention is on q and v. Where a layer norms its input first, x is what the norm gives.",
    "The multi-head adapter reads what the query map gives; a prefix meets it after any norm and rotation. The prefix "
    "without its gate is therefore the same function in families that have neither, 1 / sqrt(d) taken into its keys.",
]


def settings(ask: Ask) -> Settings:
    covered = {part.partition(":")[0] for _, arm, _ in ROWS for part in arm.split("+")}
    stating, _ = _methods()
    arms = {label: arm for label, arm, _ in ROWS} | {name: name for name in stating if name not in covered}
    return {"arms": arms, "tokens": 7}


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"family": family} for family in family_names()]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.lab.worlds.families import random_model
    from tunescope.methods.text_form import parse
    from tunescope.reproduce.recipes._literal_forms import compared, moved

    model = random_model(unit["family"])
    given = _inputs(model, settings["tokens"])
    found: dict[str, Any] = {}
    for label, arm in settings["arms"].items():
        try:
            artifacts = moved(model, parse(published.begun(arm)))
        except UserError as refusal:
            found[label] = {"refused": str(refusal)}
            continue
        places = compared(model, artifacts, given)
        found[label] = {"all": _largest(places.values())}
        if arm == IDENTITY[1]:
            kinds = {_kind(name) for name in places if name.endswith(".heads")}
            found[label] |= {
                kind: _largest(one for name, one in places.items() if _kind(name) == kind and name.endswith(".heads"))
                for kind in sorted(kinds)
            }
    return {"arms": found}


def table(settings: Settings, found: Found) -> Table:
    theirs = {label: words for label, _, words in ROWS}
    rows = []
    for label, arm in settings["arms"].items():
        outcomes = [outcome["arms"][label] for _, outcome in found]
        said = _said(arm, theirs.get(label, ()))
        rows.append((label, [*said, *_measured([one["all"] for one in outcomes if "all" in one])]))
    whole = [outcome["arms"][ROWS[0][0]] for _, outcome in found]
    for kind in dict.fromkeys(key for one in whole for key in one if key not in ("all", "refused")):
        places = [one[kind] for one in whole if kind in one]
        rows.append((f"{IDENTITY[0]}, {kind}", [*[Cell()] * 4, *_measured(places)]))
    for unit, outcome in found:
        done = [one["all"] for one in outcome["arms"].values() if "all" in one]
        shown = f"{len(done)} of {len(outcome['arms'])} forms"
        rows.append((unit["family"], [*[Cell()] * 4, Cell(text=shown), *_measured(done)[1:]]))
    silent = ", ".join(_methods()[1])
    return Table(COLUMNS, rows, [*NOTES, f"Methods that state no form of this kind: {silent}."])


def _said(arm: str, paper: tuple[str, ...]) -> list[Cell]:
    """The four dimensions in the methods' own words, those of methods attached together one after the other."""
    from tunescope.methods.text_form import parse

    forms = [spec.formula for spec in parse(arm)]
    said = ["; ".join(dict.fromkeys(words)) for words in zip(*(form for form in forms if form), strict=True)]
    return [Cell(text=ours, paper=theirs) for ours, theirs in zip(said, paper or [""] * 4, strict=True)]


def _measured(places: list[list[float]]) -> list[Cell]:
    if not places:
        return [Cell(text="0"), Cell(), Cell()]
    deviation, change = _largest(places)
    return [Cell(text=str(len(places))), Cell((deviation,), digits=2), Cell((change,), digits=2)]


def _largest(places: Iterable[Iterable[float]]) -> list[float]:
    """Of all places, the largest deviation and the largest change."""
    return [largest(each) for each in zip(*places, strict=True)]


def _kind(name: str) -> str:
    """ "decoder.0.cross.heads" -> "decoder cross"."""
    stack, _, rest = name.partition(".")
    return f"{stack} {rest.split('.')[1]}" if rest else name


def _methods() -> tuple[list[str], list[str]]:
    """The methods that state a form with their fields as they are, and those that do not."""
    from tunescope.methods.text_form import methods

    stated = {name: method().formula is not None for name, method in methods().items()}
    return [name for name, does in stated.items() if does], [name for name, does in stated.items() if not does]


def _inputs(model: PreTrainedModel, tokens: int) -> dict[str, Any]:
    """Two texts; for an encoder-decoder two outputs; where the output of a decoder begins."""
    import torch

    from tunescope.lab.worlds.families import VOCAB
    from tunescope.models.anatomy import anatomy

    g = torch.Generator().manual_seed(0)
    given = {"input_ids": torch.randint(3, VOCAB, (2, tokens), generator=g)}
    if anatomy(model).kind == "encoder-decoder":
        given["decoder_input_ids"] = torch.randint(3, VOCAB, (2, tokens - 2), generator=g)
    if anatomy(model).kind == "decoder":
        given["output_start"] = torch.tensor([tokens // 2, tokens - 2])
    return given
