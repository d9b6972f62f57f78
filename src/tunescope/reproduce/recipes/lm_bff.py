"""Gao et al. 2021: a model tuned on sixteen rows a label by its own words, with prompts found and demonstrations shown.

Masked models answer at the template's {mask}, decoders by words at the end. Templates are written by a model of the T5
kind, a second --model (T5s write their own). Every seed draws its rows, finds its words and template on them, and
chooses its own rate, as published.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.data.k_shot import SEEDS, K
from tunescope.errors import UserError
from tunescope.models.load import model_name
from tunescope.report.cells import Cell, Table, intervals_over
from tunescope.reproduce import corpus_line, corpus_table, piece, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.inputs import model_settings
from tunescope.reproduce.published import Course
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _label_tasks
from tunescope.reproduce.recipes._label_tasks import Asked
from tunescope.reproduce.recipes._searches import built, resolved
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts import mask
from tunescope.trial.train.settings import Settings as Training

TITLE = "Sixteen rows a label: tuning by words, with words and templates found and demonstrations shown"
SOURCE = "Gao et al. 2021 (arXiv:2012.15723), tables 3 to 5 (RoBERTa-large)"
TAKES = ("protocol", "quick", "seeds", "models", "data", "steps", "precision", "lines", "template", "words")
KEEPS = True

COURSES = {"tuned": Course(steps=60, batch_size=8), "quick": Course(steps=4, batch_size=4, trials=1)}
COURSES["paper"] = published.LM_BFF
SIZES = {  # rows a label; demonstrations a label of a model that is not tuned; sets of them; finalists; templates
    "tuned": {"k": K, "shown": 4, "sets": 4, "finalists": 3, "beam": 20},
    "quick": {"k": 4, "shown": 1, "sets": 2, "finalists": 2, "beam": 4},
    "paper": {"k": K, "shown": K, "sets": 16, "finalists": 100, "beam": 100},
}
FEWER = {"mnli": 4, "snli": 4, "qqp": 4}  # sets, in the paper, of corpora with many test rows
MOST = {"tuned": {"test": 300}, "quick": {"test": 20}, "paper": {}}  # test rows
PAIR = "{premise}? {mask}, {hypothesis}"
MASKED = {
    "mnli": Asked(PAIR, {"entailment": "Yes", "neutral": "Maybe", "contradiction": "No"}),
    "rte": Asked(PAIR, {"entailment": "Yes", "not_entailment": "No"}),
    "sst2": Asked("{text} It was {mask}.", {"negative": "terrible", "positive": "great"}),
    "trec": Asked(
        "{mask}: {text}",
        {
            "abbreviation": "Expression",
            "description": "Description",
            "entity": "Entity",
            "human": "Human",
            "location": "Location",
            "number": "Number",
        },
    ),
}
AT_THE_END = {  # the same words where nothing can stand behind the answer
    "mnli": Asked("{premise} {hypothesis} Yes, maybe, or no?", MASKED["mnli"].words),
    "rte": Asked("{premise} {hypothesis} Yes or no?", MASKED["rte"].words),
    "sst2": Asked("{text} It was", MASKED["sst2"].words),
    "trec": Asked("{text} Answer type:", MASKED["trec"].words),
}
CUT = "inputs cut"  # what a remark of a comparison begins with
ENOUGH = 10**9  # passes: how much is tried is said by the searches' own fields
SEARCHES = {"": (), "head": (), "words": ("label_words",), "template": ("template",)}
SEARCHES["both"] = ("template", "label_words")  # in the paper's order
PAPER = {"zero-shot": ".836", "tuned": ".927±.009"}  # SST-2


def settings(ask: Ask) -> Settings:
    size = "quick" if ask.quick else ask.protocol
    made = corpus_table.settings(replace(ask, lines=()), (), COURSES[size], MOST[size], corpus_table.ALL, choose=True)
    if made["kind"] == "encoder":  # with the head that gives words; what a bare one lacks is drawn anew at each load
        made |= model_settings(made["model"], corpus_table.ALL, ask.name, in_words=True)
    in_the_middle = made["kind"] != "decoder"
    known = MASKED if in_the_middle else AT_THE_END
    task = _label_tasks.task(ask, made, known, "{text} It was {mask}." if in_the_middle else "{text} It was")
    writer = _writer(ask, made["kind"])
    lines = _lines(_size(size, made["data"]), made["kind"], writer is not None)
    return {key: made[key] for key in ("protocol", "data", "sha256", "rows", "choose", "course", "device")} | {
        **{key: made[key] for key in ("model", "kind", "weights", "parameters")},
        "seeds": ask.seeds or (1 if ask.quick else len(SEEDS)),
        "others": [writer] if writer else [],
        "task": task | {"by": "words"},
        "lines": corpus_table.kept(replace(ask, quick=False), lines, None),
        "searches": _searches(SIZES[size], made["course"]["steps"]),
        "k": SIZES[size]["k"],
    }


def _size(name: str, data: str) -> dict[str, int]:
    """The protocol's sizes; under the paper's with its fewer sets of a corpus with many test rows."""
    fewer = FEWER.get(data.partition(":")[0]) if name == "paper" else None
    return SIZES[name] | ({"sets": fewer} if fewer else {})


def _writer(ask: Ask, kind: str) -> dict[str, Any] | None:
    """The model that writes templates: the second one, or the model itself ({}); None where there is none."""
    if len(ask.others) > 1:
        raise UserError(
            f"{ask.name} takes a model, and a second of the T5 kind to write templates; {len(ask.models)} were given."
        )
    if ask.others:
        return model_settings(ask.others[0], ("encoder-decoder",), f"{ask.name}, to write templates,")
    return {} if kind == "encoder-decoder" else None


def _searches(size: dict[str, int], steps: int) -> dict[str, dict[str, Any]]:
    tuning = f"tune={steps},finalists={size['finalists']}"
    keep = max(20, size["finalists"])
    searches = resolved([f"label_words:keep={keep},{tuning}", f"template:beam={size['beam']},{tuning}"])
    return dict(zip(("label_words", "template"), searches.values(), strict=True))


def _lines(size: dict[str, int], kind: str, writes: bool) -> list[Line]:
    shown = f"demos:k=1,choose=similar,sets={size['sets']}+full"
    given, several = "given words and template", "s" * (size["shown"] > 1)
    lines = [
        Line("nothing tuned", "zero-shot", paper=_paper("zero-shot")),
        Line(f"{size['shown']} demonstration{several} a label, nothing tuned", f"demos:k={size['shown']}"),
        Line(f"tuned, {given}", "full", paper=_paper("tuned")),
        Line(f"tuned with demonstrations, {given}", shown),
        *([Line("tuned with a new head", "full", part="head")] if kind == "encoder" else []),
    ]
    for part, name in (("words", "words found"), ("template", "template found"), ("both", "template and words found")):
        if part == "words" or writes:
            lines.append(Line(f"tuned, {name}", "full", part=part))
            lines.append(Line(f"tuned with demonstrations, {name}", shown, part=part))
    return lines


def _paper(name: str) -> dict[str, dict[str, str]]:
    return {"sst2": {"accuracy": PAPER[name]}}


worlds = corpus_line.worlds


def units(settings: Settings) -> list[dict[str, Any]]:
    """What was found serves all lines of a part, so a piece is a part at a seed."""
    count = settings["seeds"]
    seeds = [*SEEDS, *range(SEEDS[-1] + 1, SEEDS[-1] + 1 + count)][:count]
    parts = dict.fromkeys(line["part"] for line in settings["lines"])
    return [{"part": part, "seed": seed} for seed in seeds for part in parts]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The part's prompt, looked for on the seed's rows, and a score of each of its lines' arms."""
    from tunescope.comparison.comparison import compare
    from tunescope.comparison.entry import AllRefused

    data = _label_tasks.files(settings, folder, k_shot=True)
    found = _found(settings, unit, data) if SEARCHES[unit["part"]] else {"passes": 0}
    asked = settings["task"] | {key: found[key] for key in ("template", "words") if key in found}
    course = settings["course"]
    arms = [line["arm"] for line in settings["lines"] if line["part"] == unit["part"]]
    try:
        done = compare(
            settings["model"],
            data,
            arms=arms,
            task=_task(asked, unit["part"]),
            seeds=[unit["seed"]],
            k_shot=settings["k"],
            trials=course["trials"],
            beyond=0,
            learning_rates=tuple(course["rates"]),
            settings=_training(course),
            dev_share=1.0,
            forgetting="none",
            out=folder / "run",
        )
    except AllRefused as problem:
        lost = dict.fromkeys(arms, problem.reason)
        return found | {"scores": {}, "rates": {}, "refused": lost, "told": {}}
    by_name = {arm["name"]: arm for arm in done.results["arms"]}
    return found | {
        "status": piece.status(arm["status"] for arm in by_name.values()),
        "scores": {name: [run["test"]["accuracy"] for run in arm["runs"]] for name, arm in by_name.items()},
        "rates": {name: arm["learning_rate"] for name, arm in by_name.items()},
        "refused": {name: arm["reason"] or arm["status"] for name, arm in by_name.items() if arm["status"] != "done"},
        "told": {name: [one for one in arm["remarks"] if one.startswith(CUT)] for name, arm in by_name.items()},
    }


def _found(settings: Settings, unit: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    """Words and template that the part's searches come to, each beginning with what the one before it found."""
    from tunescope.search.apply import with_found

    own = {"k_shot": settings["k"], "seeds": (unit["seed"],), "settings": _training(settings["course"])}
    own["rates"] = tuple(settings["course"]["rates"])
    bench, passes = _label_tasks.bench(settings, settings["model"], data, **own), 0
    for name in SEARCHES[unit["part"]]:
        search: Any = built(name, settings["searches"])
        if name == "template" and settings["others"]:
            search = replace(search, generator=settings["others"][0]["model"])
        best = search.search(bench, ENOUGH, unit["seed"], lambda line: None)
        bench, passes = with_found(bench, best), passes + best.passes
    return {"template": best.template, "words": dict(best.words), "passes": passes}


def _task(asked: dict[str, Any], part: str) -> Classification:
    """As asked; for a new head without words, and without what leads to them."""
    if part == "head":
        return Classification(template=" ".join(f"{{{name}}}" for name in mask.fields(asked["template"])), by="head")
    return Classification(**{key: value for key, value in asked.items() if key != "kind"})


def _training(course: dict[str, Any]) -> Training:
    steps = course["steps"]
    same = ("batch_size", "schedule", "warmup", "patience", "precision")
    return Training(steps=steps, eval_every=_every(steps), **{key: course[key] for key in same})


def table(settings: Settings, found: Found) -> Table:
    """A line a row: accuracy over draws of rows, the rates chosen, what the first draw's search found.

    A line that a draw was lost of has no score: of the others alone it would be another line's rows.
    """
    rows = []
    for line in settings["lines"]:
        of_part = [(unit["seed"], outcome) for unit, outcome in found if unit["part"] == line["part"]]
        outcomes = [outcome for _, outcome in of_part]
        arm = line["arm"]
        lost = {seed: one["refused"][arm] for seed, one in of_part if one["refused"].get(arm)}
        values = () if lost else tuple(value for one in outcomes for value in one["scores"].get(arm, ()))
        rates = dict.fromkeys(f"{one['rates'][arm]:g}" for one in outcomes if one["rates"].get(arm) is not None)
        score = Cell(
            values,
            line["paper"].get("accuracy", ""),
            text=_label_tasks.lost("draw", lost, len(outcomes)),
            bounds=(0.0, 1.0),
        )
        rows.append((line["label"], [score, Cell(text=", ".join(rates)), Cell(text=_says(outcomes[0]))]))
    return Table(
        ("accuracy", "rates chosen", "the first draw's prompt"), rows, [*_notes(settings), *_cut(settings, found)]
    )


def _cut(settings: Settings, found: Found) -> list[str]:
    """Where queries were cut to leave room for what stands in front of them."""
    labels = {(line["part"], line["arm"]): line["label"] for line in settings["lines"]}
    return [
        f"{labels[unit['part'], arm]}, draw {unit['seed']}: {one}"
        for unit, outcome in found
        for arm, remarks in outcome.get("told", {}).items()
        for one in remarks
    ]


def _says(outcome: dict[str, Any]) -> str:
    if "words" not in outcome:
        return ""
    return f"{outcome['template']} " + ", ".join(f"{label}: {word}" for label, word in outcome["words"].items())


def _every(steps: int) -> int:
    """Steps between two looks."""
    return max(1, steps // 10)


def _notes(settings: Settings) -> list[str]:
    task, course, label_words = settings["task"], settings["course"], settings["searches"]["label_words"]
    words = f"words {', '.join(task['words'].values())}" if "words" in task else "the labels as words"
    count = len(course["rates"]) or course["trials"]
    looks = -(-course["steps"] // _every(course["steps"]))
    most = f" on {settings['rows']['test']:,} rows at most" if "test" in settings["rows"] else " on all rows"
    writer = f" Templates are written by {model_name(settings['others'][0]['model'])}." if settings["others"] else ""
    return [
        f"Given: template {task['template']!r}, {words}. {settings['k']} rows a label to train on and as many to "
        f"choose by, drawn by each seed; tested{most}. {intervals_over(settings['seeds'], 'seed', 'seeds')}",
        f"{course['steps']:,} steps of {course['batch_size']}, the best of {looks} looks at the "
        f"development rows; the rate is the best of {count} there, at each seed by itself. What is found is the best "
        f"of {label_words['finalists']} candidates after {label_words['tune']:,} steps of full tuning at one rate, "
        f"{'the smallest of these' if course['rates'] else 'the middle of its own grid'}.{writer}",
        "Demonstrations beside tuning are drawn from the half of each label most like the query by the model's own "
        "states, where the paper has an SBERT; they stand in front of it.",
    ]
