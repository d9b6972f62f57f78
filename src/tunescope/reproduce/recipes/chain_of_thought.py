"""When writing the steps helps a small transformer: procedures of three steps, learned with and without their states.

Trained from scratch on one procedure at a time. "At once" learns to write the last state behind what is given;
"steps" learns to write every state, so it has three times the tokens to learn from in a row. At once is therefore
trained twice: for as many updates, and for three times as many, which gives it as many learned tokens and more passes.
Plus one three times is the case that needs no steps: it is plus three, digit by digit. Sums of neighbours and hops
along a permutation have to be composed. The question is that of Wei et al. 2022 (arXiv:2201.11903) and, for what a
shallow transformer can compose, of Feng et al. 2023 (arXiv:2305.15408); neither has this table.
"""

from typing import Any

from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings

TITLE = "Three steps of a procedure, the answer at once or with its steps: answers right"
SOURCE = "our own, after Wei et al. 2022 (arXiv:2201.11903) and Feng et al. 2023 (arXiv:2305.15408)"
TAKES = ("quick", "seeds")

CASES = (("plus-one", 1), ("neighbour-sums", 1), ("neighbour-sums", 2), ("hops", 1), ("hops", 2))
QUICK_CASES = (("plus-one", 1), ("hops", 1))
ARMS = {"at once": "at once", "tokens": "at once, as many learned tokens", "steps": "steps written"}
WIDTH, HEADS = 64, 4


def settings(ask: Ask) -> Settings:
    return {
        "seeds": ask.seeds or (2 if ask.quick else 5),
        "cases": [list(case) for case in (QUICK_CASES if ask.quick else CASES)],
        "width": WIDTH,
        "heads": HEADS,
        "initial": WIDTH**-0.5,
        "steps": 70 if ask.quick else 500,
        "batch_size": 32 if ask.quick else 64,
        "rate": 3e-3,
        "rows": 2**14 if ask.quick else 2**16,
        "test_rows": 500 if ask.quick else 2000,
    }


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    return [
        {"procedure": name, "layers": layers, "seed": seed, "arm": arm}
        for seed in range(settings["seeds"])
        for name, layers in settings["cases"]
        for arm in ARMS
    ]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    import torch

    from tunescope.lab.worlds import procedures
    from tunescope.lab.worlds.lessons import problem
    from tunescope.lab.worlds.models import Shape, gpt2
    from tunescope.trial.train.loop import train

    procedure, steps = procedures.find(unit["procedure"]), unit["arm"] == "steps"
    given = procedures.lesson(procedure, settings["rows"], unit["seed"], steps=steps)
    shape = Shape(unit["layers"], settings["heads"], settings["width"], initial=settings["initial"])
    model = gpt2(shape, procedures.BASE, given.train.shape[1], unit["seed"])
    how = _training(settings, settings["steps"] * (procedure.times if unit["arm"] == "tokens" else 1))
    learning = problem(model, dict(model.named_parameters()), settings["rate"], given)
    state = train(learning, how, unit["seed"])
    test, _ = procedures.rows(procedure, "test", settings["test_rows"], 0, steps=steps)
    written = procedures.writes(model, test[:, : -given.answer], given.answer)
    right = written == test[:, -given.answer :]
    last = given.answer // procedure.times if steps else given.answer
    return {
        "answer": float(right[:, -last:].all(1).to(torch.float64).mean()),
        "all": float(right.all(1).to(torch.float64).mean()),
        "tokens": state.step * settings["batch_size"] * given.answer,
        "dev": state.best_score,
        "curve": state.curve,
    }


def table(settings: Settings, found: Found) -> Table:
    rows = []
    for name, layers in settings["cases"]:
        by_arm = {
            arm: [out for unit, out in found if (unit["procedure"], unit["layers"], unit["arm"]) == (name, layers, arm)]
            for arm in ARMS
        }
        cells = [Cell.of(outcomes, "answer") for outcomes in by_arm.values()]
        gain = [steps["answer"] - once["answer"] for steps, once in zip(by_arm["steps"], by_arm["tokens"], strict=True)]
        label = f"{name} three times, {layers} layer{'s' * (layers != 1)}"
        rows.append((label, [*cells, Cell(tuple(gain), bounds=(-1.0, 1.0))]))
    learned = ", ".join(f"{ARMS[unit['arm']]} {out['tokens']:,}" for unit, out in found[: len(ARMS)])
    notes = [
        "The model writes everything by itself; an answer is right when all of the last state is. Gain: steps less at "
        "once with as many learned tokens, seed by seed.",
        f"Width {settings['width']}, {settings['heads']} heads, {settings['steps']} updates of "
        f"{settings['batch_size']} rows ({settings['steps'] * 3} for as many learned tokens), one learning rate, "
        f"{settings['rate']:g}, for all. Learned tokens of the first case: {learned}. Longer training, other rates or "
        "sizes are not in it.",
    ]
    return Table((*ARMS.values(), "gain"), rows, notes)


def _training(settings: Settings, steps: int) -> Any:
    """Never stopped early; scored ten times, and the best is kept."""
    from tunescope.trial.train.settings import Settings as Training

    return Training(
        steps=steps,
        batch_size=settings["batch_size"],
        schedule="cosine",
        precision="float32",
        eval_every=max(1, steps // 10),
        patience=steps,
    )
