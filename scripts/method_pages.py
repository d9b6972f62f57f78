"""A page a method for the documentation, from its own file and from committed results; `--check` only compares.

python -m scripts.method_pages
"""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import tunescope
from tunescope.methods.artifact import Spec
from tunescope.methods.text_form import FOLDERS, methods
from tunescope.system import plugins

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "methods"
KINDS = {"contexts": "context: something to attend to", "deltas": "delta: a change at a site or in a parameter"}
REAL = {
    "sst2": "SST-2, all-MiniLM-L6-v2",
    "trec": "TREC, all-MiniLM-L6-v2",
    "e2e": "E2E, stories260K",
    "sst2-smollm2": "SST-2, SmolLM2-135M",
    "trec-smollm2": "TREC, SmolLM2-135M, two budgets",
    "ag_news-smollm2": "AG News, SmolLM2-135M, two budgets",
    "trec-methods": "TREC, SmolLM2-135M",
    "sst2-methods": "SST-2, SmolLM2-135M, every kind of method",
    "ag_news-methods": "AG News, SmolLM2-135M",
    "sst2-methods-16": "SST-2, SmolLM2-135M, 16 rows of a label",
    "trec-methods-16": "TREC, SmolLM2-135M, 16 rows of a label",
    "ag_news-methods-16": "AG News, SmolLM2-135M, 16 rows of a label",
    "rte-methods": "RTE, SmolLM2-135M",
}
TYPED = {
    "text": '"text:text=A review of a film:"',
    "reweight": "demos:k=1+reweight",
    "head": "head",
    "anchors": "",
    "lora": "lora:rank=8,sites=all-linear",
    "adapter": "adapter:placement=parallel,scale=4.0",
    "prefix": "prefix:length=10",
}


ABSENT = """\
## Not here

- (IA)³ is no arm by its name: CONTRIBUTING.md shows it as the example of a method of yours, and files of it are read
  ([formats](../formats.md)).
- VeRA, UniLoRA, LoRA+ and further forms of LoRA. Files of `adapters` that hold VeRA are read.
- LoReFT, steering vectors and linear task vectors; UniPELT's gates; PrefixMemory-Tuning.
- Cartridges' self-study and Attention Matching, which make a context from a long text; peft's files of the first are
  read as prefixes.
- GEPA, MIPRO and other searches in which a language model rewrites the prompt.
- Soft tokens within the text: a `soft` stands in front, an `infix` behind.
"""


def pages() -> dict[str, str]:
    """File name -> text."""
    known = methods()
    names = {name: folder for folder in FOLDERS for name in plugins.names(folder)}
    found = {f"{name}.md": "\n".join(page(name, known[name], folder)) for name, folder in names.items()}
    return found | {"index.md": "\n".join(index(known, names))}


def index(known: dict[str, type[Spec]], names: dict[str, str]) -> Iterator[str]:
    yield "# The methods\n"
    yield "What trains nothing, `demos` and `cot`, is on [the page of demonstrations](../demonstrations.md); what looks"
    yield "for words, on [that of prompts](../prompts.md). Methods are listed with `+` and train together: `a+b`.\n"
    for folder in FOLDERS:
        yield f"## {folder.rpartition('.')[2].capitalize()}\n"
        for name in (one for one, place in names.items() if place == folder):
            yield f"- [`{name}`]({name}.md): {first_line(known[name])}"
        yield ""
    yield ABSENT
    yield "```{toctree}\n:hidden:\n"
    yield from names
    yield "```\n"


def page(name: str, method: type[Spec], folder: str) -> Iterator[str]:
    module = inspect.getmodule(method)
    assert module is not None
    yield f"# {name}\n"
    yield " ".join((module.__doc__ or "").partition("\n\n")[0].split()) + "\n"
    yield f"It is a {KINDS[folder.rpartition('.')[2]]}.\n"
    yield from typed(name, method)
    yield from added(method)
    yield from said(method)
    yield from sizes(name, method)
    yield from places(name)
    yield from measured(name)


def first_line(method: type) -> str:
    return (method.__doc__ or "").strip().splitlines()[0]


def typed(name: str, method: type[Spec]) -> Iterator[str]:
    if example := TYPED.get(name, f"{name}"):
        yield f"```\ntunescope compare MODEL rows.jsonl --arms {example}\n```\n"
        if method.__name__ in tunescope.__all__:
            yield f"In Python it is `tunescope.{method.__name__}`; its signature stands in [the names](../api.md).\n"
        else:
            yield f"In Python it comes by `from {method.__module__} import {method.__name__}`.\n"


def added(method: type[Spec]) -> Iterator[str]:
    """The formula that `tunescope reproduce unified-forms` computes, where the method has one at its defaults."""
    needed = [field for field in fields(method) if field.default is MISSING and field.default_factory is MISSING]
    form = None if needed else method().formula
    if form is None:
        return
    yield "## What it adds\n"
    yield f"| change | {cell(form.change)} |\n|---|---|"
    yield f"| insertion | {form.insertion} |\n| at | {form.site} |\n| new h | {cell(form.composition)} |\n"
    yield "h leaves the site, x enters it, q is the layer's query; [one table of forms](../unified.md) computes it as"
    yield "it stands, beside the attached method.\n"


def said(method: type[Spec]) -> Iterator[str]:
    """The docstring, a field a paragraph."""
    yield "## What it is\n"
    names = [field.name for field in fields(method)]
    for paragraph in inspect.cleandoc(method.__doc__ or "").split("\n\n"):
        text = " ".join(paragraph.split())
        for name in names:
            text = re.sub(rf"(?:^|(?<=[.;)] )){name}: ", f"\n\n**{name}**: ", text)
        plain = text.replace("*", "\\*").replace("\\*\\*", "**").strip()
        yield "\n".join(line.strip() for line in plain.splitlines()) + "\n"


def sizes(name: str, method: type[Spec]) -> Iterator[str]:
    yield "## Fields, size and rates\n"
    known = [field for field in fields(method) if name != "head"]
    if known:
        yield "| field | default |\n|---|---|"
        yield from (f"| `{field.name}` | {default(field)} |" for field in known)
        yield ""
    sized = f"A budget sets `{method.size}`." if method.size else "A budget sets nothing of it."
    rates = ", ".join(f"{rate:g}" for rate in method.learning_rates)
    trained = not method.bound and not method.whole_numbers
    yield sized + ("" if not trained else f" A comparison tries the learning rates {rates}, and goes on past an end.")
    yield ""


def default(field: Any) -> str:
    if field.default is None:
        return "none"
    if field.default is MISSING:
        return "must be given" if field.default_factory is MISSING else "empty"
    value = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else str(field.default)
    return f"`{value}`" if value else "empty"


def places(name: str) -> Iterator[str]:
    """Families on which it was tried, and the servers that take it."""
    found = json.loads((ROOT / "results" / "families.json").read_text("utf-8"))
    counts = {
        one: sum(not outcomes[one] for outcomes in found["families"].values())
        for one in found["methods"]
        if one.split()[0] == name
    }
    yield "## Where it works\n"
    for one, count in counts.items():
        yield f"- {one} on {count} of {len(found['families'])} [families tried](../families.md)."
    table = (ROOT / "docs" / "serving.md").read_text("utf-8")
    head = ["vLLM", "SGLang", "llama.cpp", "transformers"]
    for row in re.findall(r"^\| (`[^|]*) \|(.*)\|$", table, re.MULTILINE):
        if f"`{name}`" in row[0]:
            *marks, how = [part.strip() for part in row[1].split("|")]
            servers = ", ".join(server for server, mark in zip(head, marks, strict=True) if mark == "yes")
            yield f"- Served by {servers}: {how.replace('](', '](../')} ([serving](../serving.md))."
    yield ""


def measured(name: str) -> Iterator[str]:
    """Its lines in the committed comparisons on real data."""
    lines = [line for file, title in REAL.items() for line in real(name, file, title)]
    if lines:
        yield "## In our own results\n"
        yield "| data, model | arm | score | 95 % interval | parameters stored |\n|---|---|---|---|---|"
        yield from lines
        yield "\nThe other arms of the same comparisons are [here](../measured.md), and as [reports](../gallery.md).\n"


def real(name: str, file: str, title: str) -> Iterator[str]:
    path = ROOT / "results" / f"{file}.json"
    if not path.exists():
        return
    results = json.loads(path.read_text("utf-8"))
    digits = 1 if results["task"]["metric"] == "bleu" else 3
    for arm in results["arms"]:
        if (
            arm["name"].partition(" @ ")[0].partition(":")[0] == name
            and "+" not in arm["name"]
            and arm["score"] is not None
        ):
            low, high = arm["interval"]
            score = f"{arm['score']:.{digits}f} | {low:.{digits}f} to {high:.{digits}f}"
            yield f"| {title} | `{arm['name']}` | {score} | {arm['parameters']['stored']:,} |"


def cell(formula: str) -> str:
    return f"`{formula.replace('|', chr(92) + '|')}`"


def main() -> None:
    made = pages()
    if "--check" in sys.argv[1:]:
        stale = [name for name, text in made.items() if (PAGES / name).read_text("utf-8") != text]
        stale += sorted({path.name for path in PAGES.glob("*.md")} - set(made))
        sys.exit(f"out of date: {', '.join(stale)}; type: python -m scripts.method_pages" if stale else 0)
    PAGES.mkdir(exist_ok=True)
    for name, text in made.items():
        (PAGES / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
