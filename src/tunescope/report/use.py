"""How each arm is used: on new rows, in three lines of Python, behind a server; and where its artifact lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from tunescope.report import text
from tunescope.system import shell
from tunescope.system.hub_name import parted

Json = dict[str, Any]
CLASSES = {"decoder": "AutoModelForCausalLM", "encoder-decoder": "AutoModelForSeq2SeqLM", "encoder": "AutoModel"}


def use(results: Json, arms: Sequence[Mapping[str, Any]]) -> Json | None:
    """What the page says of it; None where no arm has an artifact. arms: as `view` has them.

    RUN stands for the run's folder, which results.json does not know.
    """
    best, model = results.get("best") or {}, results.get("model") or {}
    both = [(arm, results["arms"][arm["index"]]) for arm in arms if arm["done"]]
    kept = [_arm(arm, raw) for arm, raw in both if _has_artifact(raw)]
    if not kept:
        return None
    first = max(kept, key=lambda arm: (arm["key"] == best.get("arm"), arm["dev"]))  # the first of equals
    place = "RUN/best" if best.get("path") and first["key"] == best.get("arm") else first["place"]
    name = str(text.clean(str(model.get("name") or "MODEL")))
    return {
        "arm": first["name"],
        "predict": shell.join(
            ["tunescope", "predict", "RUN", "NEW.jsonl", "--out", "ANSWERS.jsonl", *_named(first, best)]
        ),
        "python": _python(name, _loaded(model, results.get("task") or {}), place),
        "serve": _serve(first["served_as"], name, place),
        "arms": kept,
    }


def _named(arm: Mapping[str, Any], best: Mapping[str, Any]) -> list[str]:
    """The option that asks this arm and not the best on the development rows."""
    return [] if arm["key"] == best.get("arm") else [f"--arm={arm['key']}"]


def _has_artifact(raw: Mapping[str, Any]) -> bool:
    """Results of today say so; of earlier ones what stores parameters has one."""
    methods = raw.get("methods")
    return bool(raw.get("runs")) and bool((raw.get("parameters") or {}).get("stored") if methods is None else methods)


def _arm(arm: Mapping[str, Any], raw: Mapping[str, Any]) -> Json:
    """The run that dev chose, or the first. key: its name as it is typed. dev: its mean score there."""
    run = raw.get("chosen") or raw["runs"][0]
    identity = str(text.clean(str(run.get("id") or raw["runs"][0].get("id") or "ID")))
    return {
        "key": str(raw.get("name")),
        "name": arm["name"],
        "group": arm["group"],
        "dev": fmean(float(one.get("dev") or 0.0) for one in raw["runs"]),
        "place": f"RUN/arms/{identity}/artifact",
        "served_as": str(raw.get("served_as") or ""),
    }


def _loaded(model: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    kind = str(model.get("kind") or "decoder")
    in_words = kind == "encoder" and task.get("by") != "head"
    return "AutoModelForMaskedLM" if in_words else CLASSES.get(kind, "AutoModel")


def _python(model: str, auto: str, place: str) -> str:
    """What is a string in it is written as Python writes it, whatever it holds."""
    name, revision = parted(model)
    given = f"{name!r}, revision={revision!r}" if revision else repr(name)
    return "\n".join(
        (
            f"import tunescope as ts; from transformers import AutoTokenizer, {auto}",
            f"model, tokenizer = (auto.from_pretrained({given}) for auto in ({auto}, AutoTokenizer))",
            f"with ts.attach(model, *ts.load({place!r}), tokenizer=tokenizer): ...  # generate, or score",
        )
    )


def _serve(form: str, model: str, place: str) -> str:
    """The export that a server takes; "" where none has a place for such an arm."""
    if not form:
        return ""
    return shell.join(["tunescope", "export", place, "--to", form, "--model", model, "--out", "SERVED"])
