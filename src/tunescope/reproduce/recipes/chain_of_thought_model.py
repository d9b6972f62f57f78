"""Where writing steps helps a decoder of yours, and where it loses: the procedures of `chain-of-thought`, in words.

Prompted: demonstrations with the answer at once, and with every state in front of it. Tuned: LoRA on answers at once,
on three times as many of them (as many learned tokens), and on states and answer. What is scored is the answer, read
behind "The answer is" where states are written.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.lab.worlds import procedures
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import corpus_line
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import model_settings
from tunescope.reproduce.recipe import Found, Settings
from tunescope.tasks.answers.extract import Extraction
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning
from tunescope.trial.train.settings import Settings as Training

TITLE = "Three steps of a procedure in words, on a given decoder: the answer at once or with its steps"
SOURCE = "our own, after Wei et al. 2022 (arXiv:2201.11903); `chain-of-thought` has the same trained from scratch"
TAKES = ("quick", "seeds", "model", "steps", "precision")
KEEPS = True

ASKED = {
    "plus-one": "Add one to each digit, 9 becoming 0, three times: {}",
    "neighbour-sums": "To each digit add the one before it, to the first the last, and keep the last digit of each "
    "sum, three times: {}",
    "hops": "The last digit is a place in the eight digits before it, counted from 0; read the digit there, go to the "
    "place that it names, and read on, three digits in all: {}",
}
SHOWN, TEMPLATE, LEAD = 8, "Q: {input}\nA:", "The answer is"
PROMPTED, ONCE, TOKENS, STEPS = "prompted", "at once", "tokens", "steps"
SHOWN_ONCE, SHOWN_STEPS = f"demos:k={SHOWN}", f"demos:k={SHOWN}+cot"
LORA = "lora"


def settings(ask: Ask) -> Settings:
    from tunescope.system.machine import default_device, precision_on

    if ask.model is None:
        raise UserError(f"{ask.name} needs --model MODEL, a decoder. Without one: tunescope reproduce chain-of-thought")
    whole = {"train": 1000, "dev": 50, "test": 100}
    return model_settings(ask.model, ("decoder",), ask.name) | {
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "cases": ["hops"] if ask.quick else list(ASKED),
        "rows": {"train": 40, "dev": 6, "test": 8} if ask.quick else whole,
        "steps": ask.steps or (2 if ask.quick else 100),
        "batch_size": 8,
        "precision": precision_on(default_device(), ask.precision),
        "trials": 1 if ask.quick else 3,
    }


worlds = corpus_line.worlds


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"procedure": name, "way": way} for name in settings["cases"] for way in (PROMPTED, ONCE, TOKENS, STEPS)]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Arm -> the share of test answers right, a seed each."""
    rows = {part: _rows(unit["procedure"], part, count) for part, count in settings["rows"].items()}
    data, way = corpus_line.written(rows, folder / "data"), unit["way"]
    if way == PROMPTED:
        task: Any = Reasoning(template=TEMPLATE, lead=LEAD)
        arms = _compared(settings, data, task, (SHOWN_ONCE, SHOWN_STEPS), folder)
        scores = {name: [run["test"]["exact_match"] for run in arm["runs"]] for name, arm in arms.items()}
    else:
        task = Generation(target="written" if way == STEPS else "target", template=TEMPLATE)
        arms = _compared(settings, data, task, (LORA,), folder, times=3 if way == TOKENS else 1)
        targets = [row["target"] for row in rows["test"]]
        answers = [corpus_line.tested(run, folder)["outputs"] for run in arms[LORA]["runs"]]
        scores = {LORA: [_right(texts, targets, is_read=way == STEPS) for texts in answers]}
    rates = {name: arm["learning_rate"] for name, arm in arms.items()}
    return {"scores": scores, "rates": rates, "refused": {name: arm["reason"] for name, arm in arms.items()}}


def _rows(name: str, part: Any, count: int) -> list[dict[str, str]]:
    """Questions in words, each once, with the answer, the states before it, and both as they are learned together."""
    procedure = procedures.find(name)
    given = procedure.given(part, count, seed=0)
    found = {}
    for digits, *states in zip(given, *procedure.states(given), strict=True):
        target = _spaced(states[-1])
        steps = ", then ".join(map(_spaced, states)) + "."
        asked = ASKED[name].format(_spaced(digits))
        found[asked] = {"input": asked, "target": target, "steps": steps, "written": f"{steps} {LEAD} {target}"}
    return list(found.values())


def _spaced(digits: Any) -> str:
    return " ".join(map(str, digits.tolist()))


def _compared(
    settings: Settings, data: Mapping[str, str], task: Any, arms: Sequence[str], folder: Path, times: int = 1
) -> dict[str, Any]:
    """The arms of a comparison as results.json has them, by name."""
    from tunescope.comparison.comparison import compare

    steps = settings["steps"] * times
    asked = {key: settings[key] for key in ("batch_size", "precision")}
    how = Training(steps=steps, eval_every=max(1, steps // 5), patience=5, **asked)
    done = compare(
        settings["model"],
        data,
        arms=list(arms),
        task=task,
        seeds=settings["seeds"],
        trials=settings["trials"],
        beyond=0,
        settings=how,
        forgetting="none",
        out=folder / "run",
    )
    return {arm["name"]: arm for arm in done.results["arms"]}


def _right(texts: Sequence[str], targets: Sequence[str], *, is_read: bool) -> float:
    """The share of answers right; is_read: each stands behind the lead, in a text that has the states in front."""
    rule = Extraction("line", LEAD)
    answers = [rule.answer(text) if is_read else text.strip() for text in texts]
    return sum(answer == target for answer, target in zip(answers, targets, strict=True)) / len(targets)


def table(settings: Settings, found: Found) -> Table:
    """A procedure a row: prompted and tuned, at once and with steps, and what steps gain seed by seed."""
    rows = []
    for name in settings["cases"]:
        by_way = {unit["way"]: outcome for unit, outcome in found if unit["procedure"] == name}
        shown = [_cell(by_way[PROMPTED], arm) for arm in (SHOWN_ONCE, SHOWN_STEPS)]
        tuned = [_cell(by_way[way], LORA) for way in (ONCE, TOKENS, STEPS)]
        rows.append((f"{name} three times", [*shown, _gain(*shown), *tuned, _gain(*tuned[1:])]))
    prompted = (f"{SHOWN} shown, at once", f"{SHOWN} shown with steps", "gain")
    tuned_ways = ("tuned at once", "as many tokens", "tuned with steps", "gain")
    return Table((*prompted, *tuned_ways), rows, _notes(settings))


def _cell(outcome: Mapping[str, Any], arm: str) -> Cell:
    values = tuple(outcome["scores"].get(arm, ()))
    return Cell(values, text="" if values else outcome["refused"].get(arm, "") or "none", bounds=(0.0, 1.0))


def _gain(once: Cell, steps: Cell) -> Cell:
    pairs = zip(steps.values, once.values, strict=False)
    return Cell(tuple(one - other for one, other in pairs), bounds=(-1.0, 1.0))


def _notes(settings: Settings) -> list[str]:
    count, steps = settings["rows"], settings["steps"]
    return [
        f"Model: {settings['parameters']:,} parameters. Answers right of at most {count['test']} questions; intervals "
        f"are over {settings['seeds']} seeds of demonstrations or of training.",
        f"Tuned: LoRA on at most {count['train']:,} questions, {steps} steps of {settings['batch_size']} "
        f"({3 * steps} for as many tokens) in {settings['precision']}, the best of {settings['trials']} rates on "
        f"{count['dev']} others. Gain: steps less at once, tuned ones less at once with as many tokens, seed by seed.",
    ]
