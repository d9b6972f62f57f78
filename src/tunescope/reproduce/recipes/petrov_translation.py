"""Petrov et al. 2024, appendix on translation: a model that knows English-German is to learn English-Spanish.

Their word pairs, tokenisation, sizes and rates are not known, nor was code released: all of these are ours, and only
the direction can be held against theirs. Letters, 500 words, two layers; `lab/worlds/dictionary.py` says why letters.
Prefixes get three times LoRA's steps: theirs had ten times in section 6.2, and a prefix is slow to train.
LoRA is on the maps that their released code for section 6.2 gives it, W_O and both of the MLP. Per layer of width d,
rank r there has 12 d r parameters: as many as 12 r layer inputs, or 6 r free keys and values.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.lab.worlds.adaptation import adapted, unadapted
from tunescope.lab.worlds.dictionary import Language, Spelling, ids, keep, kept, lesson, read, synthetic
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._courses import Plan, course, diverged

TITLE = "Pretrained on English-German words, adapted to English-Spanish, at equal parameters: whole words right"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), appendix, translation"
TAKES = ("data", "quick", "seeds")
RESUMES = True

BEFORE: Language = "de"
AFTER: Language = "es"
LANGUAGES: dict[Language, str] = {BEFORE: "German", AFTER: "Spanish"}
PAPER = {"pretrained": {"de": "almost perfect"}, "inputs": {"es": "fails"}, "lora": {"es": ".94"}}
WHERE = (
    "For real words give a file: --data FILE, tab-separated columns en, de, es, plain or gzipped. MUSE has them: "
    "https://github.com/facebookresearch/MUSE, en-de.txt and en-es.txt, to be joined on the English word."
)


def arms(rank: int) -> dict[str, str]:
    """Every arm with its label; all but full tuning and the last have equally many parameters."""
    return {
        "pretrained": "pretrained on German",
        "full": "full tuning",
        f"inputs:length={12 * rank}": f"prefix of {12 * rank}, as layer inputs",
        f"prefix:length={6 * rank}": f"prefix of {6 * rank}, free keys and values",
        f"lora:rank={rank},sites=attn.o,ffn.in,ffn.out": f"rank-{rank} LoRA on the MLP and W_O",
        f"prefix:length={24 * rank}": f"prefix of {24 * rank}, free keys and values: four times the parameters",
    }


def settings(ask: Ask) -> Settings:
    count, length, rank, batch = (50, 6, 4, 50) if ask.quick else (500, 8, 8, 32)
    dictionary = read(Path(ask.data), count, length) if ask.data else synthetic(count, length)
    shape = Shape(2, 4, 48) if ask.quick else Shape(2, 4, 96)
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "dictionary": Path(ask.data).name if ask.data else "synthetic",
        "words": len(dictionary.words),
        "digest": keep(dictionary),
        "shape": [shape.layers, shape.heads, shape.width],
        "rank": rank,
        "equal_parameters": 12 * rank * shape.layers * shape.width,
        "plans": {arm: replace(plan, batch_size=batch).to_json() for arm, plan in _plans(ask.quick, rank).items()},
    }


def _plans(quick: bool, rank: int) -> dict[str, Plan]:
    """The quick size has one rate an arm, so no trials."""
    steps, trial = (250, 0) if quick else (1200, 150)
    tried = {"full": (1e-3, 3e-3), "lora": (1e-2, 3e-2), "inputs": (5e-2, 2e-1), "prefix": (5e-2, 2e-1)}
    fixed = {"full": (3e-3,), "lora": (1e-2,), "inputs": (1e-1,), "prefix": (5e-2,)}
    plans = {"pretraining": Plan(steps, (3e-3,))}
    for arm in list(arms(rank))[1:]:
        method = arm.partition(":")[0]
        longer = 3 if method in ("inputs", "prefix") else 1
        plans[arm] = Plan(longer * steps, (fixed if quick else tried)[method], trial)
    return plans


def worlds(settings: Settings) -> list[Pretraining[Spelling]]:
    return [_world(settings, seed) for seed in range(settings["seeds"])]


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"seed": seed, "arm": arm} for seed in range(settings["seeds"]) for arm in arms(settings["rank"])]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    seed, arm, dictionary = unit["seed"], unit["arm"], kept(settings["digest"])
    model = pretrained(_world(settings, seed))
    tests = {str(language): ids(dictionary, language) for language in LANGUAGES}
    if arm == "pretrained":
        return dict(unadapted(model, dictionary.length, tests))
    outcome = adapted(
        model, published.begun(arm), lesson(dictionary, AFTER), tests, course(settings, arm), seed, folder
    )
    if arm != "full":
        times = 4 if arm == list(arms(settings["rank"]))[-1] else 1
        assert outcome["trained"] == times * settings["equal_parameters"], (arm, outcome["trained"])
    return dict(outcome)


def table(settings: Settings, found: Found) -> Table:
    rows = []
    for arm, label in arms(settings["rank"]).items():
        outcomes = [outcome for unit, outcome in found if unit["arm"] == arm]
        if outcomes:
            paper = PAPER.get(arm.partition(":")[0], {})
            cells = [Cell.of(outcomes, "exact", key, paper=paper.get(key, "")) for key in LANGUAGES]
            tuned = "trained" in outcomes[0]
            trained = Cell(text=f"{outcomes[0]['trained']:,}" if tuned else "")
            letters = Cell.of(outcomes, "dev") if tuned else Cell()
            rows.append((label, [trained, *cells, letters]))
    return Table(
        ("parameters", *LANGUAGES.values(), "Spanish letters"),
        rows,
        [*_notes(settings), *diverged(outcome for _, outcome in found)],
    )


def _notes(settings: Settings) -> list[str]:
    real = settings["dictionary"] != "synthetic"
    kind = f"of {settings['dictionary']}" if real else "that are SYNTHETIC: drawn syllables, no language"
    return [
        f"{settings['words']:,} words {kind}. All are taught and all are asked: a dictionary cannot be guessed.",
        "Spanish letters: with the letters before them given, the fill-up after the word included.",
        "Prefixes are trained for three times the steps of the others.",
        "The paper's words, sizes and rates are not known; only the direction can be compared.",
        *([] if real else [WHERE]),
    ]


def _world(settings: Settings, seed: int) -> Pretraining[Spelling]:
    given = course(settings, "pretraining")
    return Pretraining(
        Spelling(BEFORE, settings["digest"]), Shape(*settings["shape"]), given.settings, given.rates[0], seed
    )
