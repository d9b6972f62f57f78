"""What a search finds at one seed: tested once, saved as an artifact, and kept as soon as it is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tunescope import __version__
from tunescope.attachment.artifact_folder import load, save
from tunescope.data import scores
from tunescope.errors import UserError
from tunescope.methods.contexts.text import Text
from tunescope.methods.text_form import name_of
from tunescope.methods.text_form import show as shown_arm
from tunescope.report.text import clean
from tunescope.search.apply import cut_behind, made, shown, stats_of, with_found
from tunescope.search.frame import check_frame
from tunescope.search.names import show
from tunescope.search.search import Found, Say, Search
from tunescope.search.without_words import open_unworded
from tunescope.system import files, run_folder, sealed_json
from tunescope.trial.bench import Bench
from tunescope.trial.chats import said
from tunescope.trial.identity import asked_with
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan

Json = dict[str, Any]


@dataclass(frozen=True)
class Seed:
    """One search at one seed. place: its number among all, from 1, by which its prompt's folder is named."""

    search: Search
    seed: int
    passes: int
    place: int

    def __str__(self) -> str:
        return f"{named(self.search)}, seed {self.seed}"


def opened(plan: Plan, chosen: Sequence[Search]) -> tuple[Bench, bool]:
    """The plan's bench for these searches, and whether words stand in for labels that have none yet."""
    finds_words = all(one.names_labels for one in chosen)
    return open_unworded(plan) if finds_words else (open_bench(plan), False)


def every(chosen: Sequence[Search], seeds: Sequence[int], passes: int) -> list[list[Seed]]:
    """Each search at each seed, search by search."""
    return [
        [Seed(one, seed, passes, 1 + row * len(seeds) + column) for column, seed in enumerate(seeds)]
        for row, one in enumerate(chosen)
    ]


def identity(bench: Bench, one: Seed) -> str:
    """Of all that a found prompt depends on: with other data, weights or files in the old places it is another one."""
    asked: Json = {"search": show(one.search), "seed": one.seed, "passes": one.passes, "task": bench.task.describe()}
    asked |= {"reads": dict(reads)} if (reads := one.search.reads()) else {}
    made_on = {"data": dict(bench.sha256), "base": bench.fingerprint, "device": bench.device.type}
    return run_folder.identity({**asked, **made_on, **asked_with(bench), "tunescope": __version__})


def kept(bench: Bench, one: Seed, folder: Path) -> Json | None:
    """What was found before, if it and its prompt lie in the folder whole."""
    before = run_folder.kept(folder, _path(bench, one, folder))
    return before if before is not None and _prompt_is_kept(bench, before, folder) else None


def has_lost_prompt(bench: Bench, one: Seed, folder: Path) -> bool:
    """Whether something was found before, and the prompt is no more what it was."""
    return _path(bench, one, folder).exists() and kept(bench, one, folder) is None


def find(bench: Bench, one: Seed, folder: Path, say: Say) -> Json:
    """What the search finds, which is kept in the folder. Raises UserError where it refuses."""
    check_frame(one.search, bench, named(one.search))
    found = one.search.search(bench, one.passes, one.seed, lambda line: say(f"  {one}: {line}"))
    run_folder.check_stands(folder)
    run = _run(bench, one, found, folder / "prompts" / f"{name_of(type(one.search))}-{one.place}")
    path = _path(bench, one, folder)
    files.make_folder(path.parent)
    sealed_json.put(path, files.finite(run))
    return sealed_json.read(path)  # as another process has it


def line(one: Seed, run: Json) -> str:
    return f"{one}: {run['found']['passes']} passes, dev {run['found']['dev']:.3f}: {run['shown']}"


def named(one: Search) -> str:
    """The search as typed, but for the folders of a path in it: results are shared, paths are private."""
    return str(clean(show(one)))


def _path(bench: Bench, one: Seed, folder: Path) -> Path:
    return folder / "seeds" / f"{identity(bench, one)}.json"


def _prompt_is_kept(bench: Bench, run: Json, folder: Path) -> bool:
    """Whether the prompt that a run names lies there whole; a run without one needs none."""
    if run["artifact"] is None:
        return True
    try:
        (prompt,) = load(folder / run["artifact"])
    except UserError:
        return False
    return bool(getattr(prompt.spec, "text", None) == said(bench, run["found"]["text"]))


def _run(bench: Bench, one: Seed, found: Found, place: Path) -> Json:
    """What was found, its test rows, and where it lies."""
    own = with_found(bench, found)
    stats_found = stats_of(own, found.text)
    run = {"found": asdict(found) | {"words": dict(found.words)}, "seed": one.seed, "stats": stats_found}
    run |= {"test": scores.aggregate(own.task.metric, stats_found), "artifact": None, "arm": None}
    run |= {"shown": shown(found, bench.task), "cut": cut_behind(own, found.text)}
    if found.text:
        about = {"search": named(one.search), "seed": one.seed, "dev": found.dev, "task": own.task.describe()}
        artifact = made(own, found.text)
        assert artifact is not None
        files.remove(place)  # a go that was killed had saved it, and kept no more
        save(place, artifact, model=bench.model, tokenizer=bench.tokenizer, about=about)
        run |= {"artifact": f"prompts/{place.name}", "arm": shown_arm((Text(text=found.text),))}
    return run
