"""Wen et al. 2023: a prompt that a person can read, for a model and a corpus of yours, and on other models.

PEZ and its rivals have one budget of passes, a gradient counting three. What each found is scored on the test rows, as
text the model itself reads (how likely it finds the words), and carried by its text to every further --model.
"""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.models.load import model_name
from tunescope.report.cells import Cell, Table, intervals_over
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.inputs import model_settings
from tunescope.reproduce.published import Course
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _label_tasks
from tunescope.reproduce.recipes._label_tasks import Asked
from tunescope.reproduce.recipes._searches import METHODS, built, resolved
from tunescope.system import files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tunescope.trial.bench import Bench

TITLE = "PEZ and its rivals at one budget of passes: accuracy, likelihood of the prompt, transfer"
SOURCE = "Wen et al. 2023 (arXiv:2302.03668), section 4 and table 1 (SST-2, found on GPT-2 large)"
TAKES = ("protocol", "quick", "seeds", "models", "data", "steps", "lines", "template", "words")
KEEPS = True

PROJECTED = "autoprompt:mode=projected"
NONE, LENGTH, READ = "zero-shot", 10, 100  # READ: test texts whose own likelihood is told
PUBLISHED = {
    "sst2": Asked("{text}. It was", {}),
    "ag_news": Asked(
        "{text} It was about",
        {"world": "politics", "sports": "sports", "business": "business", "technology": "technology"},
    ),
}
OTHERWISE = "{text} It was"
FLUENT = 0.003
SETTINGS = {  # of PEZ as published; its rivals' rates are ours
    "tuned": "",
    "paper": ",rate=0.3,optimizer=adafactor,init_from=labels",
}
ROWS = {"tuned": {"train": 2000, "dev": 200, "test": 300}, "quick": {"train": 200, "dev": 20, "test": 20}}
COURSES = {"tuned": Course(steps=200, batch_size=16), "quick": Course(steps=8, batch_size=8), "paper": published.PEZ}
ON = ("gpt2-large", "gpt2-xl", "t5-xl-lm-adapt", "opt-2.7b", "opt-6.7b")  # the source, and where to
PAPER = {
    NONE: (".8084", ".7385", ".5275", ".7248", ".5872"),
    PROJECTED: (".8756±.0035", ".7819", ".5601", ".7369", ".6528"),
    "fluentprompt": (".8833±.0035", ".7853", ".5564", ".7039", ".6174"),
    "pez": (".8812±.0015", ".778", ".6112", ".7693", ".7172"),
    "pez fluent": (".8805±.0055", ".7972", ".6330", ".7718", ".7239"),
}


def _lines(protocol: str) -> list[Line]:
    pez, start = f"pez:length={LENGTH}{SETTINGS[protocol]}", ",init_from=labels" if protocol == "paper" else ""
    arms = {"pez": (METHODS["pez"], pez), "random": (METHODS["random"], f"random:length={LENGTH}")}
    arms["pez fluent"] = (f"PEZ, fluency {FLUENT}", f"{pez},fluency={FLUENT}")
    arms[PROJECTED] = (METHODS[PROJECTED], f"{pez},keeps=projected")
    for one in ("fluentprompt", "autoprompt:mode=swap", "gcg"):
        arms[one] = (METHODS[one], f"{one}{',' if ':' in one else ':'}length={LENGTH}{start}")
    return [Line(label, arm, paper=_paper(name)) for name, (label, arm) in arms.items()]


def _paper(name: str) -> dict[str, dict[str, str]]:
    return {"sst2": dict(zip(ON, PAPER[name], strict=True))} if name in PAPER else {}


def settings(ask: Ask) -> Settings:
    size = "quick" if ask.quick else ask.protocol
    made = corpus_table.settings(
        ask, _lines(ask.protocol), COURSES[size], ROWS.get(size, {}), ("decoder",), choose=True
    )
    rows, course = made["course"]["batch_size"], made["course"]
    return {key: made[key] for key in ("protocol", "seeds", "data", "sha256", "rows", "lines", "choose")} | {
        **{key: made[key] for key in ("device", "model", "kind", "weights", "parameters")},
        "others": [model_settings(one, corpus_table.WRITERS, ask.name) for one in ask.others],
        "task": _label_tasks.task(ask, made, PUBLISHED, OTHERWISE),
        "searches": resolved([line["arm"] for line in made["lines"]], batch=rows),
        "batch_size": rows,
        "passes": 3 * rows * course["steps"],
    }


worlds = corpus_line.worlds


def units(settings: Settings) -> list[dict[str, Any]]:
    arms = [line["arm"] for line in settings["lines"]]
    return [{"arm": NONE}, *({"arm": arm, "seed": seed} for seed in range(settings["seeds"]) for arm in arms)]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One search at one seed; its prompt is an artifact in the folder, if there is one."""
    from tunescope.attachment.artifact_folder import save
    from tunescope.search.apply import made
    from tunescope.search.loop import ASKED, STEPS

    data = _label_tasks.files(settings, folder)
    bench = _label_tasks.bench(settings, settings["model"], data)
    if unit["arm"] == NONE:
        texts = [row["text"] for row in bench.splits.test[:READ] if row.get("text")]
        found: dict[str, Any] = {"prompt": "", "passes": 0, "nats": _nats(bench, texts)}
    else:
        search = built(unit["arm"], settings["searches"])
        try:
            best = search.search(bench, settings["passes"], unit["seed"], lambda line: None)
        except UserError as problem:  # such as a budget below one step of its own
            return _refused(str(problem), len(settings["others"]))
        found = {"prompt": best.text, "passes": best.passes, "dev": best.dev, "nats": _nats(bench, [best.text])}
        found |= {"steps": best.counts[STEPS], "asked": best.counts[ASKED]}
        artifact = made(bench, best.text)
        assert artifact is not None
        files.remove(folder / "prompt")  # a go that was killed had saved it, and kept no more
        save(folder / "prompt", artifact, model=bench.model, tokenizer=bench.tokenizer)
    found["scores"] = {"accuracy": [_accuracy(bench, found["prompt"])]}
    del bench
    return found | {"carried": [_carried(settings, one, found["prompt"], data) for one in _others(settings)]}


def _refused(reason: str, others: int) -> dict[str, Any]:
    """What a search comes to that the model or the budget does not let run."""
    return {"prompt": "", "passes": 0, "nats": None, "scores": {}, "reason": reason, "carried": [reason] * others}


def _others(settings: Settings) -> list[str]:
    return [one["model"] for one in settings["others"]]


def _accuracy(bench: "Bench", prompt: str) -> float:
    from tunescope.data.scores import aggregate
    from tunescope.search.apply import stats_of

    return aggregate(bench.task.metric, stats_of(bench, prompt))[bench.task.metric]


def _carried(settings: Settings, model: str, prompt: str, data: dict[str, str]) -> float | str:
    """The accuracy of another model behind the prompt, or why it has none."""
    try:
        return _accuracy(_label_tasks.bench(settings, model, data), prompt)
    except UserError as problem:
        return str(problem)


def _nats(bench: "Bench", texts: "Sequence[str]") -> float | None:
    """The mean cross-entropy of the texts' tokens, each given those before it in its own text; None of one token.

    What a text has beyond the model's positions is left out.
    """
    import torch
    import torch.nn.functional as F

    from tunescope.methods.contexts.text import token_ids
    from tunescope.tasks.answers.batches import evaluating
    from tunescope.tasks.facts import positions

    total, count, most = 0.0, 0, positions(bench.model.config, bench.tokenizer)
    with evaluating(bench.model):
        for text in texts:
            ids = torch.tensor(token_ids(bench.tokenizer, text)[:most], device=bench.device)
            logits = bench.model(input_ids=ids[None], use_cache=False).logits[0, :-1]
            total += float(F.cross_entropy(logits.float(), ids[1:], reduction="sum"))
            count += len(ids) - 1
    return total / count if count else None


def table(settings: Settings, found: Found) -> Table:
    """Accuracy on the model itself, nats a token of the prompt, accuracy on other models, the first seed's words."""
    names = [model_name(one) for one in _others(settings)]
    bare = next(outcome for unit, outcome in found if unit["arm"] == NONE)
    corpus = settings["data"].partition(":")[0]
    rows = [("no prompt", _cells([bare], names, _paper(NONE).get(corpus, {}), says=""))]
    rows[0][1][1] = Cell()
    for line in settings["lines"]:
        outcomes = [outcome for unit, outcome in found if unit["arm"] == line["arm"]]
        rows.append((line["label"], _cells(outcomes, names, line["paper"], says=outcomes[0]["prompt"])))
    elsewhere = (f"on {name}" for name in names)
    columns = ("accuracy", "nats a token", *elsewhere, "passes", "the first seed's words")
    return Table(columns, rows, _notes(settings, found, bare))


def _cells(
    outcomes: "Sequence[dict[str, Any]]", names: "Sequence[str]", paper: dict[str, str], says: str
) -> list[Cell]:
    cells = []
    for place, name in enumerate((ON[0], *names)):
        own = [one["scores"].get("accuracy") or [one["reason"]] for one in outcomes]
        scores = [[*mine, *one["carried"]][place] for mine, one in zip(own, outcomes, strict=True)]
        lost = {seed: one for seed, one in enumerate(scores) if isinstance(one, str)}
        values = () if lost else tuple(scores)  # of the other seeds alone it would be no pair of another line's
        text = _label_tasks.lost("seed", lost, len(scores))
        cells.append(Cell(values, paper.get(name, ""), text=text, bounds=(0.0, 1.0)))
    nats = tuple(one["nats"] for one in outcomes if one["nats"] is not None)
    passes = f"{fmean([one['passes'] for one in outcomes if not one.get('reason')] or [0]):,.0f}"
    steps = [one["steps"] for one in outcomes if "steps" in one]  # which older pieces did not count
    passes += f" in {fmean(steps):,.0f} steps" if steps else ""
    return [cells[0], Cell(nats, digits=2), *cells[1:], Cell(text=passes), Cell(text=says)]


def _notes(settings: Settings, found: Found, bare: dict[str, Any]) -> list[str]:
    task, most = settings["task"], max(outcome["passes"] for _, outcome in found)
    words = f", words {', '.join(task['words'].values())}" if "words" in task else ", the labels as words"
    texts = "" if bare["nats"] is None else f" The test rows' own texts have {bare['nats']:.2f}."
    asked = max((outcome.get("asked", 0) for _, outcome in found), default=0)
    looks = f" Each look is at {asked} of the development rows, the same for every search and seed." if asked else ""
    some = ", ".join(f"{count:,} {part}" for part, count in settings["rows"].items())
    return [
        f"Template {task['template']!r}{words}. {f'At most {some} rows' if some else 'All rows'}; {LENGTH} tokens in "
        f"front; {settings['passes']:,} passes of a row for each search, a gradient counting three and development "
        f"rows counted (without these as many as {settings['passes'] // 3 // settings['batch_size']:,} steps of PEZ on "
        f"{settings['batch_size']} rows; the most taken is {most:,}).{looks}",
        f"{intervals_over(settings['seeds'], 'seed', 'seeds of the search')} Nats a token: the mean cross-entropy "
        f"of the prompt's own tokens under the model, each given those before it.{texts}",
        "The paper's numbers are of GPT-2 large and of the models that are named as its others. Projected "
        "steps are PEZ's in all but what is kept. FluentPrompt's rate, plain steps and Euclidean distance are ours "
        "under both protocols, and it is without its fluency term; the authors run it with PEZ's own.",
    ]
