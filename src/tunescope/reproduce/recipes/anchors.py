"""Wang et al. 2023: are label words anchors? On a world where it can be tested, or on a model and data of yours.

At home: small decoders pretrained until they recall labels that are drawn anew for every prompt. On yours: one
demonstration a class, a draw of them for every seed; by the paper's protocol in its words, with its seeds
and as many test rows. The story to test: information flows into label words in shallow layers and from them to the
answer in deep ones; label words cut off early hurt most; label words alone keep the answer.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from tunescope.errors import UserError
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.recall import Recall, tokenizer
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.probes.anchors.prompts import Prompt, choices
from tunescope.probes.anchors.request import AnchorRequest, rounds_of
from tunescope.probes.anchors.round import Round
from tunescope.probes.demonstrations import compress, flow
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.report.cells import Cell, Table
from tunescope.report.pictures import draw
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import model_settings
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _label_tasks
from tunescope.reproduce.recipes.reweight import FIRST, PUBLISHED
from tunescope.system import files, plugins
from tunescope.tasks.prompts.demonstrations import joined
from tunescope.tasks.prompts.spans import spans
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import data_paths
from tunescope.trial.train.settings import Settings as Training

OF_DATA = ("inputs", "template", "words", "k", "test")
TITLE = "Label words as anchors: where information flows, and what can be cut or kept"
SOURCE = "Wang et al. 2023 (arXiv:2305.14160), sections 2 to 4"
TAKES = ("protocol", "quick", "seeds", "model", "data", *OF_DATA)
GROWS = True  # by whole draws

CUT = 5  # layers, as published
TESTED = {"tuned": 200, "paper": 1000}  # rows a draw
SECTIONS = ("flow", "isolate", "auc", "compress")
CONFUSED = "diagnose"  # of a given model too: labels that are drawn anew for every prompt are not confused as classes
SHARE, CORRELATION, ANY = (0.0, 1.0), (-1.0, 1.0), (-math.inf, math.inf)
NOTES = [
    "Saliency shares: into label words (S_wp), from label words to the answer (S_pq); the rest is elsewhere. Loyalty "
    "is to the uncut model's answers; the control cuts as many random words, as far as there are others. What is kept, "
    "and accuracy without demonstrations, are of the rows that importance was not weighed on.",
    "The last layer is read at the answer's position alone: there nothing can flow into label words, and a cut of them "
    "changes no answer, so the last layer but one is shown.",
    "The paper's loyalties and accuracies are GPT2-XL's, the mean of four data sets. Word loyalty: the mean Jaccard "
    "index of the five likeliest next tokens.",
    "R: the part of the AUC above one half, summed over layers, that the first half of the layers has.",
]
GIVEN = (
    "Demonstrations are parted by an empty line, where the paper parts them by a line's end, and all queries of a draw "
    "stand behind the same ones, where it drew anew for each query whose saliency it took.",
    "Confusion of classes: how far their label words' keys lie apart, two thirds of the way up, against the AUC of "
    "their probabilities, by Spearman's rank correlation over pairs of classes; of two classes there is one pair.",
)
HOME = (
    "A demonstration is an item and its label, one token each; an item stands before its label, so in a causal model "
    "what ties the two can only be at the label word or behind it. Accuracy without demonstrations is chance."
)
PAPER = {"anchors": ".795", "random-top": ".575", "text_anchor": ".511", "random": ".490"}
PAPER_WORDS = {"anchors": ".622", "text_anchor": ".367", "random": ".056", "random-top": ".045"}
PAPER_ACCURACY = {"all": ".519", "anchors": ".450", "text_anchor": ".388", "random": ".400", "random-top": ".417"}


def settings(ask: Ask) -> Settings:
    if (ask.model is None) != (ask.data is None):
        raise UserError(f"{ask.name} takes --model and --data together, or neither: then models pretrained for it.")
    seeds: Settings = {"seeds": ask.seeds or (2 if ask.quick else 5)}
    if ask.model is not None and ask.data is not None:
        seeds |= {"k": ask.k or 1, "rows": ask.inputs or (24 if ask.quick else TESTED[ask.protocol])}
        seeds |= {"protocol": "paper"} if ask.protocol == "paper" else {}
        return seeds | model_settings(ask.model, ("decoder",), ask.name) | _label_tasks.given(ask, ask.data, PUBLISHED)
    own = [f"--{name}" for name in OF_DATA if getattr(ask, name)]
    own += ["--protocol paper"] if ask.protocol == "paper" else []
    if own:
        raise UserError(f"{ask.name} has no use for {own[0]} without --model and --data.")
    return seeds | {
        "layers": [2] if ask.quick else [2, 4],
        "width": 64,
        "world": asdict(Recall(items=8, labels=2, shown=4) if ask.quick else Recall()),
        "draws": 6 if ask.quick else 50,
        "rate": 1e-3,
        "steps": 500 if ask.quick else 1000,
        "batch_size": 64,
    }


def worlds(settings: Settings) -> list[Any]:
    return [] if "model" in settings else [_world(settings, unit) for unit in units(settings)]


def units(settings: Settings) -> list[dict[str, Any]]:
    """A section of a draw each, so that each is kept as it ends."""
    draws = [{"seed": seed} for seed in seeds_of(settings)]
    if "model" not in settings:
        draws = [{"layers": layers} | draw for layers in settings["layers"] for draw in draws]
    return [draw | {"section": name} for draw in draws for name in _sections(settings)]


def seeds_of(settings: Settings) -> range:
    """Of the draws; by the paper's protocol from the paper's first on."""
    first = FIRST if settings.get("protocol") == "paper" else 0
    return range(first, first + settings["seeds"])


def _sections(settings: Settings) -> tuple[str, ...]:
    return (*SECTIONS, CONFUSED) if "model" in settings else SECTIONS


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    round = next(rounds(settings, [unit["seed"]])) if "model" in settings else _at_home(settings, unit)
    found = {unit["section"]: plugins.load(DEMONSTRATIONS, unit["section"]).measure(round)}
    gold = round.gold.bincount(minlength=len(round.labels))
    made = found | {"commonest": float(gold.max() / gold.sum()), "labels": len(round.labels)}
    return dict(files.finite(made))  # an AUC is undefined where the model gives one answer to every row


def _world(settings: Settings, unit: dict[str, Any]) -> Pretraining[Recall]:
    steps, width = settings["steps"], settings["width"]
    every = max(1, steps // 20)
    training = Training(
        steps=steps, batch_size=settings["batch_size"], schedule="cosine", eval_every=every, patience=20
    )
    shape = Shape(unit["layers"], 4, width, initial=width**-0.5)
    return Pretraining(Recall(**settings["world"]), shape, training, settings["rate"], unit["seed"])


def _at_home(settings: Settings, unit: dict[str, Any]) -> Any:
    """Queries behind demonstrations whose labels are drawn anew for every draw."""
    made = _world(settings, unit)
    words, task = tokenizer(made.curriculum), made.curriculum.task()
    prompts = []
    for shown, rows in made.curriculum.draws(settings["draws"], seed=1):
        found = spans(words, shown)
        prompts += [
            Prompt(found, query) for query in task.encode(rows, words, model_kind="decoder", behind=joined(shown))
        ]
    told_apart = choices(task.word_ids(words, "decoder"))
    return Round(pretrained(made), words, told_apart, task.labels, prompts, unit["seed"], at_once=64)


def rounds(settings: Settings, seeds: Iterable[int]) -> Iterator[Round]:
    """The draws of a given model and data that these seeds make."""
    task = {"kind": "classification"} | settings["task"]
    data = data_paths(settings["data"]) | ({"test": settings["test"]} if "test" in settings else {})
    plan = Plan(model=settings["model"], data=data, task=task, seeds=tuple(seeds))
    yield from rounds_of(AnchorRequest(plan, settings["k"], settings["rows"]), open_bench(plan))


def table(settings: Settings, found: Found) -> Table:
    """A row for every number of the story; a column for every depth, or for the one model."""
    draws: dict[tuple[int, int], dict[str, Any]] = {}
    for unit, outcome in found:
        draws.setdefault((unit.get("layers", 0), unit["seed"]), {}).update(outcome)
    draws = {which: one for which, one in draws.items() if one.keys() >= {*_sections(settings)}}
    if not draws:
        raise UserError("No draw of anchors has all of its sections yet; leave out --so-far to go on.")
    groups = sorted({group for group, _ in draws})
    columns = [[one for (of, _), one in draws.items() if of == group] for group in groups]
    names = tuple(f"{group} layers" if group else "over draws of demonstrations" for group in groups)
    rows = [
        (name, [_cell(map(read, outcomes), paper, bounds) for outcomes in columns])
        for name, paper, read, bounds in [
            *((*one, SHARE) for one in _story(draws.values(), at_home="model" not in settings)),
            *_sums(draws.values()),
        ]
    ]
    notes = [*NOTES, *(GIVEN if "model" in settings else (HOME,)), *_asked(settings)]
    if len(draws) < settings["seeds"] * len(groups):
        notes = [*notes, f"Whole draws: {len(draws)}."]
    return Table(names, rows, notes, pictures=_pictures(dict(zip(groups, columns, strict=True))))


def _asked(settings: Settings) -> list[str]:
    """By the paper's protocol: what was asked."""
    if settings.get("protocol") != "paper":
        return []
    return [
        f"Asked by {settings['task']['template']!r}: {settings['rows']:,} test rows at most, {settings['k']} of each "
        f"class in front, drawn anew by each seed, of which {FIRST} is the first."
    ]


def _cell(values: Iterable[Any], paper: str, bounds: tuple[float, float]) -> Cell:
    known = tuple(value for value in values if value is not None and math.isfinite(value))
    return Cell(known, paper, bounds=bounds) if known else Cell(paper=paper, text="undefined")


def _pictures(columns: Mapping[int, list[Any]]) -> dict[str, Markup]:
    """The shares of flow by layer over all seeds, and the arcs of the first; of a given model loyalty by size too."""
    found = {}
    for layers, outcomes in columns.items():
        curves, *arcs = flow.finding([one["flow"] for one in outcomes]).pictures
        name = f"{layers}-layers" if layers else "model"
        found[f"flow-{name}.svg"] = draw(curves)
        if not layers:  # at home what is weighed asks for other demonstrations than what is scored
            (by_size,) = compress.finding([one["compress"] for one in outcomes]).pictures
            found[f"kept-{name}.svg"] = draw(by_size)
        for layer, picture in zip(outcomes[0]["flow"]["between"], arcs, strict=True):
            found[f"arcs-{name}-layer-{layer}.svg"] = draw(picture)
    return found


def _story(draws: Iterable[Mapping[str, Any]], *, at_home: bool) -> list[tuple[str, str, Any]]:
    """What is read from a draw: its name, the paper's number, and how.

    Five layers are cut as published, beside one, where there are more of them. Left out is what could not come out
    otherwise: the flow in the last layer, a cut in the last layer alone (nothing but the answer's own position is read
    from there), and what equals its control in every draw, as the best of random sets of a demonstration of one token.
    """
    known = list(draws)
    found: list[tuple[str, str, Any]] = [
        ("accuracy", "", lambda one: one["isolate"]["accuracy"]),
        ("accuracy, zero-shot", "", _way("zero-shot", "accuracy")),
        ("commonest label", "", lambda one: one["commonest"]),
    ]
    for place, layer in (("first layer", 0), ("last layer but one", -2)):
        found += [
            (f"flow into label words, {place}", "", _share(layer, 0)),
            (f"flow from label words, {place}", "", _share(layer, 1)),
        ]
    depths = {cut["layers"] for one in known for cut in one["isolate"]["cuts"]}
    for layers, where in itertools.product(sorted(depths & {1, CUT}), ("first", "last")):
        if layers == 1 and where == "last":
            continue
        place = f"{where} layer" if layers == 1 else f"{where} {layers} layers"
        for words in ("label words", "random words"):
            found.append((f"label loyalty, {words} cut in the {place}", "", _loyalty(where, words, layers)))
    found += [
        ("AUC of attention to label words, first layer", "", lambda one: one["auc"]["auc"][0]),
        ("AUC of attention to label words, last layer", "", lambda one: one["auc"]["auc"][-1]),
    ]
    return found + _kept(known, at_home=at_home)


def _kept(known: Sequence[Mapping[str, Any]], *, at_home: bool) -> list[tuple[str, str, Any]]:
    """What is read of each way to keep a part of the demonstrations, accuracy beside that of all of them."""
    top, random = _way("random-top", "label_loyalty"), _way("random", "label_loyalty")
    one_set = all(top(one) == random(one) for one in known)
    kept = ["anchors", "labels", "by saliency", "text_anchor", "random", "random-top", "zero-shot"]
    if at_home:  # each query is asked once, so none that is weighed is scored
        kept.remove("by saliency")
    found: list[tuple[str, str, Any]] = [("accuracy, all kept", PAPER_ACCURACY["all"], _way("full", "accuracy"))]
    for name in kept:
        if one_set and name == "random-top":
            continue
        found.append((f"label loyalty, {name} kept", PAPER.get(name, ""), _way(name, "label_loyalty")))
        if name in PAPER_WORDS:
            found.append((f"word loyalty, {name} kept", PAPER_WORDS[name], _way(name, "word_loyalty")))
        if name in PAPER_ACCURACY:
            found.append((f"accuracy, {name} kept", PAPER_ACCURACY[name], _way(name, "accuracy")))
    return found


def _sums(draws: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, Any, tuple[float, float]]]:
    """As in the story, with what a value can be: how early attention tells the answer, and if keys tell confusion."""
    found: list[tuple[str, str, Any, tuple[float, float]]] = [
        ("AUC above one half, gathered by the middle layer (R)", "", _gathered, ANY)
    ]
    if any(_confusion(one) is not None for one in draws):
        found.append(("confusion of classes, predicted and actual, correlation", "", _confusion, CORRELATION))
    return found


def _gathered(one: Mapping[str, Any]) -> Any:
    cumulative = one["auc"]["cumulative"]
    return cumulative[len(cumulative) // 2 - 1] if len(cumulative) > 1 else None


def _confusion(one: Mapping[str, Any]) -> Any:
    return one[CONFUSED]["correlation"][one[CONFUSED]["layer"]] if CONFUSED in one else None


def _share(layer: int, of: int) -> Any:
    """The share of saliency at a layer; None in a model that does not have it."""
    return lambda one: one["flow"]["shares"][layer][of] if len(one["flow"]["shares"]) >= abs(layer) else None


def _loyalty(where: str, words: str, layers: int) -> Any:
    return lambda one: next(
        cut["label_loyalty"]
        for cut in one["isolate"]["cuts"]
        if (cut["where"], cut["words"], cut["layers"]) == (where, words, layers)
    )


def _way(name: str, number: str) -> Any:
    return lambda one: one["compress"]["ways"][name][number]
