"""Petrov et al. 2024, section 3: one virtual token reaches more completions than all the tokens of the vocabulary.

The paper counts what LLaMA-7B writes after each of its tokens, and after 48,218 trained virtual tokens; how those were
trained, and towards what, is not in its repository. Here every virtual token has a target that no token gives: drawn
from the model itself, or at random. A target counts as reached where greedy decoding writes all of it. That virtual
tokens write different texts is nothing that they were trained for: as many vectors as tokens, drawn, are the control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.lab.demo import PACKAGED
from tunescope.models.anatomy import anatomy
from tunescope.models.load import config_of, load_model
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import model_settings
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._completions import LENGTH, completions, targets
from tunescope.trial.train.loop import Problem, train
from tunescope.trial.train.settings import Settings as Training

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

TITLE = "Greedy completions of one token of context: every token there is, and virtual tokens trained for a completion"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), section 3"
TAKES = ("quick", "seeds", "model")

KINDS = {"temperature 1": 1.0, "temperature 2": 2.0, "uniform": None}
RATE = 1.0  # in standard deviations of the model's embeddings
HARD = "every token of the vocabulary"
DRAWN = "untrained vectors, spread as the tokens are"
COLUMNS = ("contexts", "distinct completions a context", "targets reached", "tokens right in a row")
NOTES = [
    f"A completion: {LENGTH} tokens, greedy, nothing in front (no BOS), an end of sequence a token like any other. "
    "No target is a completion of a token. Reached: greedy decoding from the virtual token writes all of the target; "
    "tokens right in a row: how much of it, from the first.",
    "Targets are drawn from the model after a random token, or uniformly from the vocabulary. One not reached in so "
    "many steps is not shown to be out of reach. The paper: LLaMA-7B; its targets and training are not known here.",
]
PAPER = {HARD: "24,426 of 32,000: .763", "temperature 1": "46,812 of 48,218: .971"}


def settings(ask: Ask) -> Settings:
    size: Settings = {"seeds": ask.seeds or (1 if ask.quick else 3), "steps": 60 if ask.quick else 500}
    many = {"temperature 1": 192, "temperature 2": 64, "uniform": 64}
    size |= {"rate": RATE, "targets": dict.fromkeys(KINDS, 24) if ask.quick else many}
    found = size | model_settings(ask.model or str(PACKAGED), ("decoder",), ask.name)
    _check_room(found["model"], ask.name)
    return found


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    soft = [{"kind": kind, "seed": seed} for kind in settings["targets"] for seed in range(settings["seeds"])]
    return [{"kind": HARD}, *({"kind": DRAWN, "seed": seed} for seed in range(settings["seeds"])), *soft]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    import torch

    model = load_model(settings["model"])[0].float().eval().requires_grad_(False)
    table = anatomy(model).table
    hard = completions(model, table(torch.arange(model.config.vocab_size)))
    if unit["kind"] == HARD:
        return {"contexts": len(hard), "distinct": _distinct(hard)}
    generator = torch.Generator().manual_seed(unit["seed"])
    if unit["kind"] == DRAWN:
        drawn = completions(model, _drawn(table.weight.detach(), generator))
        return {"contexts": len(drawn), "distinct": _distinct(drawn)}
    wanted = targets(model, KINDS[unit["kind"]], settings["targets"][unit["kind"]], hard, generator)
    return reach(model, wanted, settings, unit["seed"]) if len(wanted) else {"contexts": 0}


def _drawn(tokens: Tensor, generator: torch.Generator) -> Tensor:
    """As many vectors as there are tokens, each dimension normal with the tokens' mean and deviation in it."""
    import torch

    return tokens.mean(0) + tokens.std(0) * torch.randn(tokens.shape, generator=generator)


def reach(model: PreTrainedModel, wanted: Tensor, settings: Settings, seed: int) -> dict[str, Any]:
    """Train one embedding for each target (n, LENGTH), all at once, from those of random tokens.

    A target is reached where any of the evaluations saw it written whole.
    """
    import torch
    import torch.nn.functional as F

    table = anatomy(model).table
    generator = torch.Generator().manual_seed(seed)
    soft = table(torch.randint(model.config.vocab_size, (len(wanted),), generator=generator)).clone().requires_grad_()
    best = torch.zeros(len(wanted), dtype=torch.long)  # tokens right in a row, at any evaluation

    def loss(rows: list[int]) -> Tensor:
        states = torch.cat([soft[rows, None], table(wanted[rows, :-1])], 1)
        logits = model(inputs_embeds=states, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), wanted[rows].flatten())

    def score() -> float:
        right = (completions(model, soft.detach()) == wanted).long().cumprod(-1).sum(-1)
        best.copy_(best.maximum(right))
        return float((right == LENGTH).double().mean())

    problem = Problem(
        parameters={"soft": soft},
        rates={"soft": settings["rate"] * float(table.weight.std())},
        loss=loss,
        score=score,
        lengths=[LENGTH] * len(wanted),
        labelled=[LENGTH] * len(wanted),
    )
    state = train(problem, _training(settings["steps"], len(wanted)), seed)
    return {
        "contexts": len(wanted),
        "distinct": _distinct(completions(model, soft.detach())),
        "reached": int((best == LENGTH).sum()),
        "right": float(best.double().mean()),
        "curve": state.curve,
    }


def table(settings: Settings, found: Found) -> Table:
    rows = []
    for kind in (HARD, DRAWN, *settings["targets"]):
        outcomes = [outcome for unit, outcome in found if unit["kind"] == kind and outcome["contexts"]]
        label = kind if kind in (HARD, DRAWN) else f"virtual tokens, targets {'drawn at ' * (kind != 'uniform')}{kind}"
        cells = [
            Cell(text=f"{sum(outcome['contexts'] for outcome in outcomes):,}"),
            _share(outcomes, "distinct", PAPER.get(kind, "")),
            _share(outcomes, "reached"),
            Cell(tuple(outcome["right"] for outcome in outcomes if "right" in outcome), bounds=(0, LENGTH)),
        ]
        rows.append((label, cells))
    return Table(COLUMNS, rows, NOTES)


def _training(steps: int, rows: int) -> Any:
    """Every embedding is on its own: one batch of all of them, and no clipping of one by another."""
    return Training(steps=steps, batch_size=rows, clip=1e9, eval_every=-(-steps // 5), patience=steps)


def _distinct(sequences: Tensor) -> int:
    return len(set(map(tuple, sequences.tolist())))


def _share(outcomes: list[dict[str, Any]], key: str, paper: str = "") -> Cell:
    return Cell(tuple(o[key] / o["contexts"] for o in outcomes if key in o), paper, bounds=(0.0, 1.0))


def _check_room(model: str, asker: str) -> None:
    positions = getattr(config_of(model), "max_position_embeddings", None)
    if positions is not None and positions < LENGTH:
        raise UserError(f"{asker} feeds {LENGTH} tokens, and --model {model} has {positions} positions. Give another.")
