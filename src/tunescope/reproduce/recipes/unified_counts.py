"""He et al. 2022: how many parameters each form trains, stores and keeps at inference, on a model of any shape.

From a config alone: the weights are on no device, and nothing is downloaded. Every count is
`tunescope.trial.budget.count` of the methods as they would be attached. The paper's tables have one figure a form: what
inference keeps, by formulas that leave biases out.
"""

from typing import Any, NamedTuple

from tunescope.errors import UserError
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._configs import config_settings, model_label, without_weights

TITLE = "How many parameters each form trains, stores and keeps at inference"
SOURCE = "He et al. 2022 (arXiv:2110.04366), sections 4.1 to 4.6"
TAKES = ("model",)

BART = "BART-large"
SHAPES: dict[str, dict[str, Any]] = {
    BART: {
        "model_type": "bart",
        "vocab_size": 50265,
        "d_model": 1024,
        "encoder_layers": 12,
        "decoder_layers": 12,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "max_position_embeddings": 1024,
    },
    "RoBERTa-base": {
        "model_type": "roberta",
        "vocab_size": 50265,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "pad_token_id": 1,
    },
    "GPT-2 medium": {"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16},
}


class Row(NamedTuple):
    """A form at a size. trained, share: the paper's, of BART-large; printed: the share in its tables, where known."""

    label: str
    arm: str
    share: str = ""
    printed: str = ""
    trained: str = ""


HEADS, PARALLEL = "sites=attn.heads", "placement=parallel"
ROWS = (
    Row("prefix 200, with its network", "prefix:length=200,mlp=800", "3.63", trained="62.1 million"),
    Row("prefix 30, with its network", "prefix:length=30,mlp=800", "0.54", trained="61.6 million"),
    Row("prefix 200, trained directly", "prefix:length=200", "3.63"),
    Row("sequential adapter, attn, 200", "adapter:bottleneck=200,sites=attn", "3.63"),
    Row("parallel adapter, attn, 200", f"adapter:bottleneck=200,{PARALLEL},{HEADS}", "3.63"),
    Row("multi-head parallel adapter, 200", f"adapter:bottleneck=200,placement=multi-head,{HEADS}", "3.63"),
    Row("sequential adapter, ffn, 200", "adapter:bottleneck=200", "2.42"),
    Row("parallel adapter, ffn, 200", f"adapter:bottleneck=200,{PARALLEL}", "2.42"),
    Row("parallel adapter, ffn, 512", f"adapter:bottleneck=512,{PARALLEL}", "6.19"),
    Row("parallel adapter, ffn, 600", f"adapter:bottleneck=600,{PARALLEL}", "7.26"),
    Row("parallel adapter, ffn, 1024", f"adapter:bottleneck=1024,{PARALLEL}", "12.39"),
    Row("LoRA, attn, 200", "lora:rank=200,sites=attn.q,attn.v", "7.26"),
    Row("LoRA, ffn, 102", "lora:rank=102,sites=ffn.in,ffn.out", "6.17", "7.2"),
    Row("prefix 30 + LoRA, ffn, 102", "prefix:length=30,mlp=800+lora:rank=102,sites=ffn.in,ffn.out", "6.71", "6.7"),
    Row(
        "MAM: prefix 30 + parallel, ffn, 512",
        f"prefix:length=30,mlp=800+adapter:bottleneck=512,{PARALLEL},scale=4.0",
        "6.74",
        "6.7",
    ),
    Row(
        "MAM for GLUE: prefix 16 + parallel, ffn, 16",
        f"prefix:length=16,mlp=800+adapter:bottleneck=16,{PARALLEL},scale=2.0",
    ),
    Row("BitFit", "bias"),
    Row("prompt tuning, 200", "soft:length=200", "0.05"),
    Row("full fine-tuning", "full"),
)
COLUMNS = ("trained", "stored", "live at inference", "stored, % of the model")
NOTES = [
    "Trained: what the optimiser sees. Stored: what is saved for each task; the network that makes a prefix while "
    "training is folded away. Live: what inference holds beside the base; a change of weights is merged into it and "
    "holds nothing, a decoder's prompt is kept as keys and values. A language head that is tied counts once.",
    "In brackets, for BART-large alone: the paper's own formulas, two decimals, and what its tables print where that "
    "is known to us. LoRA of rank 102 at the feed-forward is printed as 7.2 % in the main table and is 6.17 % by the "
    "formula and by count; the row with a prefix of 30 beside it, printed as 6.7 %, agrees with 6.17 %. Figures in "
    "brackets under trained: the prefix network of the authors' code, counted.",
    "Biases of adapters are counted here (0.01 points) and left out by the formulas. On RoBERTa the authors' code "
    "makes three sets of prefixes and uses one; here each model has those that it uses. An encoder's pooler is counted "
    "in the model and tuned by nothing.",
]


def settings(ask: Ask) -> Settings:
    if ask.model is None:
        return {"models": SHAPES}
    return {"models": {model_label(ask.model): config_settings(ask.model)}}


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"model": label} for label in settings["models"]]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.methods.text_form import parse
    from tunescope.trial.budget import count

    model = without_weights(settings["models"][unit["model"]])
    found: dict[str, Any] = {}
    for row in ROWS:
        try:
            found[row.label] = count(model, parse(row.arm))._asdict()
        except UserError as refusal:
            found[row.label] = {"refused": str(refusal)}
    return {"total": sum(parameter.numel() for parameter in model.parameters()), "counts": found}


def table(settings: Settings, found: Found) -> Table:
    rows: list[tuple[str, list[Cell]]] = []
    refused = []
    for unit, outcome in found:
        total = outcome["total"]
        rows.append((f"{unit['model']}: {total / 1e6:,.1f} million", [Cell()] * 4))
        for row in ROWS:
            counts = outcome["counts"][row.label]
            if "refused" in counts:
                refused.append(f"{unit['model']}, {row.label}: {counts['refused']}")
                rows.append((row.label, [Cell(text="refused"), *[Cell()] * 3]))
            else:
                rows.append(
                    (row.label, _cells(row if unit["model"] == BART else Row(row.label, row.arm), counts, total))
                )
    return Table(COLUMNS, rows, [*NOTES, *refused])


def _cells(row: Row, counts: dict[str, int], total: int) -> list[Cell]:
    theirs = [f"{row.share} by formula"] * bool(row.share) + [f"printed {row.printed}"] * bool(row.printed)
    return [
        Cell(text=f"{counts['trained']:,}", paper=row.trained),
        Cell(text=f"{counts['stored']:,}"),
        Cell(text=f"{counts['live']:,}"),
        Cell(text=f"{100 * counts['stored'] / total:.2f}", paper=", ".join(theirs)),
    ]
