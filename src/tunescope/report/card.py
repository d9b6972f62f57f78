"""A model card: what a pushed artifact is, how it did, what it cost, how to load it. Names and numbers, no rows."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunescope.report import text
from tunescope.report.view import BEST, View, view
from tunescope.system.hub_name import parted

Json = dict[str, Any]
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
PROMPT = re.compile(r"text=.*", re.DOTALL)
LAYOUT = """# {name}

{what} for the frozen model {base} (family {family}, weights `{fingerprint}`), made with tunescope. It is {size}, no
model: it is attached to the base model, whose weights stay as they are.

{arms}

## Load it

    tunescope pull {repo} --out FOLDER

    import tunescope as ts
    from transformers import {auto}, AutoTokenizer

    model, tokenizer = {auto}.from_pretrained(BASE), AutoTokenizer.from_pretrained(BASE)
    with ts.attach(model, *ts.load(FOLDER), tokenizer=tokenizer):
        ...

Attaching checks that BASE has the weights it was made for. `tunescope.json` says how a row was asked (template, label
words, metric). {holds}

{results}## Licence

{licence} The base model's own licence holds beside it.
"""


@dataclass(frozen=True)
class CardFacts:
    """What a card is made of: where it goes, the artifact's manifest, the run's results, and what the user adds.

    base: the base model's name on the hub, or as it is known. licence: an identifier such as apache-2.0.
    auto: the class of transformers that loads the base as it was tuned.
    """

    repo: str
    manifest: Mapping[str, Any]
    n_parameters: int
    results: Mapping[str, Any] | None = None
    base: str | None = None
    licence: str | None = None
    auto: str = "AutoModel"


def card(facts: CardFacts) -> str:
    """Markdown with a YAML head. Every name in it is escaped; of prompts typed as arms only that there was one is told.

    Raises UserError for results of another version.
    """
    from huggingface_hub import ModelCardData

    shown = None if facts.results is None else view(unworded(facts.results))
    base = parted(facts.base or str((shown.raw["model"] if shown else {}).get("name") or "")).name
    methods = sorted({str(one["method"]) for one in facts.manifest["artifacts"]})
    head = ModelCardData(
        base_model=base if HUB_ID.fullmatch(base) else None,
        library_name="tunescope",
        license=facts.licence,
        tags=["tunescope", *methods],
    )
    arm = _redacted(str((facts.manifest.get("about") or {}).get("arm") or ""))
    page = LAYOUT.format(
        name=escaped(facts.repo.rpartition("/")[2]),
        what=_listed(methods),
        base=f"`{base}`" if HUB_ID.fullmatch(base) else f"'{escaped(base)}'" if base else "that it was tuned on",
        family=escaped(str(facts.manifest["base"]["model_type"])),
        fingerprint=escaped(str(facts.manifest["base"]["fingerprint"])[:12]),
        size=f"{facts.n_parameters:,} numbers" if facts.n_parameters else "text",
        arms=f"Its arm in the comparison: {escaped(arm)}."
        if arm
        else "It was saved by itself, outside of a comparison.",
        repo=facts.repo,
        auto=facts.auto,
        holds=_holds(facts.manifest["artifacts"]),
        results=_results(shown) if shown else "",
        licence=f"{escaped(facts.licence)}." if facts.licence else "None was stated: ask before you use it.",
    )
    return f"---\n{head.to_yaml()}\n---\n\n{page}"


def unworded(results: Mapping[str, Any]) -> Json:
    """The results with no prompt in the names of arms: an arm may be named by the words that it puts in front."""
    found: Json = copy.deepcopy(dict(results))
    names: dict[str, str] = {}
    for arm in found.get("arms") or []:
        name = _redacted(str(arm.get("name")))
        same = sum(one == name or one.startswith(f"{name} (") for one in names.values())
        names[str(arm.get("name"))] = f"{name} ({same + 1})" if same and name != arm.get("name") else name

    def replaced(value: object) -> object:
        if isinstance(value, str):
            for name in sorted(names, key=len, reverse=True):
                value = value.replace(name, names[name]) if name != names[name] else value
            return value
        if isinstance(value, dict):
            return {key: replaced(one) for key, one in value.items()}
        return [replaced(one) for one in value] if isinstance(value, list) else value

    for key in ("comparisons", "best", "verdict"):
        found[key] = replaced(found.get(key))
    found["arms"] = [arm | {"name": names[str(arm.get("name"))], "spec": ""} for arm in found.get("arms") or []]
    return found


def escaped(value: str) -> str:
    """Text that Markdown and HTML show as it is, on one line, with nothing invisible, no path and no secret in it."""
    safe = str(text.clean(value)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]#+!|~$@])", r"\\\1", safe).replace("://", ":&#47;&#47;")


def _redacted(name: str) -> str:
    return PROMPT.sub("text=…", name)


def _listed(methods: Sequence[str]) -> str:
    return " and ".join(methods).capitalize()


def _holds(artifacts: Sequence[Mapping[str, Any]]) -> str:
    count = sum(len(str(one["fields"].get("text") or "")) for one in artifacts)
    return f"It also holds the words of the prompt, {count:,} characters." if count else ""


def _results(shown: View) -> str:
    scores = shown.frame.metric
    rows = "".join(
        f"| {_named(arm, shown.best_key)} | {escaped(arm['shown'])} | {escaped(arm['span'])} | {_forgets(shown, arm)}"
        f"{_count(arm)} | {escaped(arm['status'])} |\n"
        for arm in shown.arms
    )
    columns = ["arm", escaped(scores), "95 % interval", *(["forgets"] if shown.forgets else []), "parameters", "status"]
    table = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n{rows}"
    table += f"\n{escaped(shown.forgetting)}\n" if shown.forgets else ""
    said = [shown.beaten] if shown.beaten else []
    verdict = "\n".join(escaped(sentence) for sentence in [*said, *shown.sentences])
    budget = _budget(shown.raw["protocol"], shown.raw["data"])
    notes = "\n".join(f"- {escaped(str(note))}" for note in shown.raw["data"].get("notes") or ())
    data = f"## Data\n\n{notes}\n\n" if notes else ""
    return f"## Results\n\n{table}\n## Budget\n\n{budget}\n\n{data}## Verdict: {escaped(shown.answer)}\n\n{verdict}\n\n"


def _forgets(shown: View, arm: Json) -> str:
    """The cell with its bar; nothing where there is no such column."""
    cell = f"{arm['forgets']['shown']} {arm['forgets']['error']}".strip() if arm["done"] else ""
    return f"{escaped(cell)} | " if shown.forgets else ""


def _named(arm: Json, best: str | None) -> str:
    name = escaped(arm["name"])
    return f"{name} ({BEST})" if arm["done"] and arm["key"] == best else name


def _count(arm: Json) -> str:
    return text.count(arm["stored"]) if arm["done"] else "–"


def _budget(protocol: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    facts = {
        "parameters": protocol.get("budgets") or protocol.get("budget"),
        "steps": protocol.get("steps"),
        "batch size": protocol.get("batch_size"),
        "seeds": protocol.get("seeds"),
        "learning rates tried for each arm": protocol.get("trials_per_arm"),
        "more, past an end of them that won, at most": protocol.get("beyond") or None,
    } | {f"{part} rows": (data.get(part) or {}).get("rows") for part in ("train", "dev", "test")}
    return "\n".join(f"- {name}: {escaped(text.fact(value))}" for name, value in facts.items() if value is not None)
