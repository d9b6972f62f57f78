"""How much likelier can a few words in front make texts of one kind? Found words against chosen ones and soft ones.

Every text is cut into its first words, which are given, and those that follow, which are to become likely. The searches
see training texts; what they find is measured on texts held out. Two floors: no prompt, and random prompts, the best
kept. One ceiling: a soft prompt of as many tokens, trained for as many passes.
"""

from typing import TYPE_CHECKING, Any

from tunescope.data import read, splits
from tunescope.data.row import value
from tunescope.errors import UserError
from tunescope.models.load import load_model
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import data_settings, model_settings
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._searches import METHODS, built, resolved
from tunescope.tasks.kinds.generation import Generation

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.trial.bench import Bench

TITLE = "A few words in front that make a kind of text likelier, on texts held out"
SOURCE = "after Wen et al. 2023 (arXiv:2302.03668), section 4"
TAKES = ("quick", "seeds", "model", "data")

GIVEN, LATER, FEWEST = 8, 32, 40  # words given, words that follow, texts needed
NONE, SOFT = "none", "soft"
RATES = (3e-3, 3e-2, 1e-1)


def settings(ask: Ask) -> Settings:
    if ask.model is None or ask.data is None:
        raise UserError(f"{ask.name} needs --model MODEL and --data FILE, rows with a text.")
    size: Settings = {"seeds": ask.seeds or (1 if ask.quick else 3), "length": 5, "batch_size": 16}
    given = {"length": size["length"], "batch": size["batch_size"]}
    methods = resolved(["random", "pez"] if ask.quick else list(METHODS), **given)
    size |= {"passes": 2500 if ask.quick else 10_000, "methods": methods}
    return size | model_settings(ask.model, ("decoder",), ask.name) | data_settings(ask.data)


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    seeds = range(settings["seeds"])
    return [
        {"method": NONE},
        *({"method": one, "seed": seed} for seed in seeds for one in [*settings["methods"], SOFT]),
    ]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.attachment.attached import attach
    from tunescope.methods.contexts.text import Text

    bench, method = _bench(settings), unit["method"]
    if method == NONE:
        return {"loss": _loss(bench, "test", begun=False), "rows": len(bench.splits.test), "prompt": ""}
    if method == SOFT:
        return _soft(settings, bench, unit["seed"])
    found = built(method, settings["methods"]).search(bench, settings["passes"], unit["seed"], lambda line: None)
    with attach(bench.model, Text(text=found.text), tokenizer=bench.tokenizer):
        return {"loss": _loss(bench, "test", begun=True), "passes": found.passes, "prompt": found.text}


def table(settings: Settings, found: Found) -> Table:
    """Nats a token, the gain over no prompt, and what the first seed's prompt says."""
    bare = next(outcome["loss"] for unit, outcome in found if unit["method"] == NONE)
    rows = [("no prompt", [Cell((bare,)), Cell(), Cell(text="")])]
    for method in [*settings["methods"], SOFT]:
        outcomes = [outcome for unit, outcome in found if unit["method"] == method]
        losses = tuple(one["loss"] for one in outcomes)
        says = Cell(text=outcomes[0]["prompt"])
        label = METHODS.get(method, f"soft prompt of {settings['length']}, trained")
        rows.append((label, [Cell(losses), Cell(tuple(bare - one for one in losses)), says]))
    tested = next(outcome["rows"] for unit, outcome in found if unit["method"] == NONE)
    notes = [
        f"Mean cross-entropy a token of {LATER} words behind the first {GIVEN}, on {tested} texts held out; "
        f"{settings['length']} tokens in front; {settings['passes']:,} passes of a row for each, a gradient counting "
        "three. Intervals are over seeds of the search.",
        f"The soft prompt has the best of {len(RATES)} rates by development texts, each with all the passes.",
    ]
    return Table(("nats a token", "gain", "the first seed's words"), rows, notes)


def _loss(bench: "Bench", part: str, *, begun: bool) -> float:
    """Nats a token of a part's continuations, as the model stands."""
    from tunescope.tasks.answers.batches import evaluating
    from tunescope.trial.bench import room

    rows = bench.encoded(part, behind="" if begun else None, room=room(bench, 0))
    with evaluating(bench.model):
        sums = [float(bench.task.row_losses(bench.model, [row], bench.tokenizer).sum()) for row in rows]
    return sum(sums) / sum(len(row.target_ids) for row in rows)


def _soft(settings: Settings, bench: "Bench", seed: int) -> dict[str, Any]:
    """The rate with the least loss on the development texts."""
    tried = {rate: _trained(settings, bench, seed, rate) for rate in RATES}
    rate = min(tried, key=lambda one: tried[one]["dev"])
    return tried[rate] | {"rate": rate, "prompt": "", "passes": settings["passes"]}


def _trained(settings: Settings, bench: "Bench", seed: int, rate: float) -> dict[str, Any]:
    from tunescope.attachment.attached import attach
    from tunescope.methods.contexts.soft import Soft
    from tunescope.trial.train.loop import Problem, train
    from tunescope.trial.train.settings import Settings as Training

    steps = settings["passes"] // (3 * settings["batch_size"])
    with attach(bench.model, Soft(length=settings["length"]), tokenizer=bench.tokenizer, seed=seed) as tuned:
        rows = bench.encoded("train", room=None)

        def loss(chosen: list[int]) -> "Tensor":
            found: Tensor = bench.task.loss(bench.model, [rows[index] for index in chosen], bench.tokenizer)
            return found

        learning = Problem(
            parameters=dict(tuned.train().named_parameters()),
            rates=dict.fromkeys(tuned.named_parameters(), rate),
            loss=loss,
            score=lambda: -_loss(bench, "dev", begun=False),
            lengths=[len(row.input_ids) + len(row.target_ids) for row in rows],
            labelled=[len(row.target_ids) for row in rows],
        )
        how = Training(steps=steps, batch_size=settings["batch_size"], eval_every=max(1, steps // 5), patience=5)
        state = train(learning, how, seed)
        tuned.eval()
        assert state.best_score is not None
        return {"dev": -state.best_score, "loss": _loss(bench, "test", begun=False)}


def _bench(settings: Settings) -> "Bench":
    """Beginnings and continuations of the texts that are long enough, cut into parts by their content."""
    import torch

    from tunescope.trial.bench import Bench
    from tunescope.trial.plan import Plan

    texts = [value(row, "text", index).split() for index, row in enumerate(read.read(settings["data"]))]
    rows = [
        {"input": " ".join(words[:GIVEN]), "target": " ".join(words[GIVEN : GIVEN + LATER])}
        for words in texts
        if len(words) >= GIVEN + LATER
    ]
    if len(rows) < FEWEST:
        raise UserError(
            f"--data {settings['data']}: {len(rows)} texts of {GIVEN + LATER} words or more; at least {FEWEST} are "
            "needed."
        )
    parts = splits.split(rows, share=0.25)
    model, words = load_model(settings["model"])
    words.eos_token = None  # the texts are cut, and do not end there
    task = Generation(template="{input}", max_new_tokens=1).prepare(parts.parts(), words, model_kind="decoder")
    plan = Plan(model=settings["model"], data={}, task={"kind": "generation"})
    model = model.float().eval().requires_grad_(False)
    return Bench(plan, model, words, "decoder", task, parts, {}, settings["weights"], torch.device("cpu"))
