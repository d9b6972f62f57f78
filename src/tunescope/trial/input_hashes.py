"""Hashes of all that a run has read: who reads the same later, a worker or `resume`, must find the same there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from tunescope.data.corpus_name import shown
from tunescope.errors import UserError
from tunescope.models.load import model_name
from tunescope.system import files, run_folder
from tunescope.trial.bench import Bench
from tunescope.trial.identity import asked_with, tokenizer_settings

OF_MODEL = {
    "weights": "weights",
    "tokenizer": "tokenizer",
    "tokenizer_config": "tokenizer's length limit and chat template",
    "config": "configuration",
    "behind": "layers behind",
}
SHOWN = 12  # digits of a hash
OLDER_CUT = re.compile(r"cut from the training file by a hash of the content .* stay together\.$")


def input_hashes(bench: Bench) -> dict[str, str]:
    """What was read -> its hash: data.PART, model.weights and so on, encoder.NAME for each other encoder that is."""
    settings = hashlib.sha256(tokenizer_settings(bench.tokenizer).encode()).hexdigest()
    model = {"weights": bench.fingerprint, **asked_with(bench), "tokenizer_config": settings}
    found = {f"data.{part}": digest for part, digest in bench.sha256.items()}
    found |= {"cut" if name == "cut" else f"model.{name}": digest for name, digest in model.items()}
    return found | {f"encoder.{name}": digest for name, digest in bench.encoders.items()}


def differences(bench: Bench, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """For a person: of everything in both whose hash differs, its name and both hashes."""
    return [
        f"{_named(bench, what)} had the hash {before[what][:SHOWN]} and has {now[what][:SHOWN]}"
        for what in before
        if what in now and before[what] != now[what]
    ]


def check_worker(
    bench: Bench, before: Mapping[str, str], now: Mapping[str, str], how: str = "go on, with tunescope resume"
) -> None:
    """UserError where a worker has read something else than the process that began it. how: to go on with the run."""
    found = differences(bench, before, now)
    if found:
        raise UserError(
            f"a file was changed while the run reads it: {'; '.join(found)}. What was done with the old one is kept: "
            f"put it back and {how}; or begin anew with the new one in another folder, with --out"
        )


def check_folder(bench: Bench, folder: Path, now: Mapping[str, str]) -> None:
    """UserError where the run in a folder was made of something else, so that to go on would mix both or replace it."""
    found = differences(bench, _kept(folder), now)
    if found:
        raise UserError(
            f"{folder} was made of something else than lies there now: {'; '.join(found)}. Nothing was changed in it. "
            "Put the old one back, or go on with the new one in another folder: --out FOLDER"
        )


def _kept(folder: Path) -> dict[str, str]:
    """As the folder's question holds it; of an older run as its results do, if it has any; else nothing."""
    config = run_folder.read_config(folder) if (folder / "config.json").exists() else {}
    if config.get("read"):
        return dict(config["read"])
    try:
        results = files.read_json(folder / "results.json")
        data, model = results["data"], results["model"]
        found = {f"data.{part}": data[part]["sha256"] for part in ("train", "dev", "test") if part in data}
        older = {"cut": "none"} if any(map(OLDER_CUT.search, data.get("notes") or ())) else {}
        return found | {"model.weights": model["fingerprint"]} | older
    except (UserError, OSError, KeyError, TypeError):
        return {}


def _named(bench: Bench, what: str) -> str:
    """data.dev as the dev file's name, model.tokenizer as the model's tokenizer."""
    if what == "cut":  # which has words for a hash
        return "what cuts dev and test rows out of the training file, so that labels have their share of each,"
    kind, _, name = what.partition(".")
    if kind == "data":
        return f"{shown(bench.plan.data[name])} ({name})"
    if kind == "encoder":
        return f"the weights of the encoder {model_name(name)}"
    return f"the {OF_MODEL.get(name, name)} of {model_name(bench.plan.model)}" if kind == "model" else what
