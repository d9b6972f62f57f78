"""Artifacts on the Hugging Face hub, or on a server that speaks as it does (HF_ENDPOINT)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tunescope.attachment.artifact_folder import TENSORS, load
from tunescope.attachment.manifest import MANIFEST
from tunescope.errors import UserError
from tunescope.methods.text_form import show
from tunescope.report.card import CardFacts, card
from tunescope.report.text import clean, has_secret, paths, strings
from tunescope.system import files, run_folder

FILES = (MANIFEST, TENSORS)


@dataclass(frozen=True)
class Pushed:
    """Where an artifact is now, the commit that put it there, and what to know."""

    url: str
    commit: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Pulled:
    """The new folder, the commit that it is of, and its methods as they are typed."""

    path: Path
    commit: str
    arm: str


def push(
    folder: str | Path, repo: str, *, private: bool = True, licence: str | None = None, base: str | None = None
) -> Pushed:
    """Put a saved artifact into a repository of the hub, with a model card; the repository is made if it is not there.

    Three files go up, whatever else lies in the folder: `tunescope.json`, `tensors.safetensors`, and the card. The card
    has the results of the run where the folder is a run's `best`. You are who `hf auth login` or HF_TOKEN says.

    Args:
        private: seen by you alone. licence: an identifier for the card, such as apache-2.0. base: the base model's name
            on the hub, for the card; otherwise as the results have it.

    Raises:
        UserError: the folder holds no whole artifact; `private` is asked and the repository is public; the hub is not
            reached or says no.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    place, results, artifacts = Path(folder), _results(Path(folder)), load(folder)
    manifest = (place / MANIFEST).read_bytes()
    said = list(strings(json.loads(manifest)))
    if any(map(has_secret, said)):
        raise UserError(f"{place / MANIFEST} holds what looks like an access token: take it out, and save it again.")
    count = sum(v.numel() for a in artifacts for v in a.tensors.values() if v.is_floating_point())
    said_of = json.loads(manifest)
    page = card(CardFacts(repo, said_of, count, results, base, licence, auto_class(said_of)))
    contents = {MANIFEST: manifest, TENSORS: (place / TENSORS).read_bytes(), "README.md": page.encode()}
    api = HfApi()
    with _named(repo):
        api.create_repo(repo, private=private, exist_ok=True)
        is_private = bool(api.repo_info(repo).private)
        if private and not is_private:
            raise UserError(f"{repo} exists and is public. Name another, make it private there, or say public.")
        adds = [CommitOperationAdd(name, data) for name, data in contents.items()]
        done = api.create_commit(repo, adds, commit_message=f"tunescope: {' + '.join(_methods(artifacts))}")
    notes = [] if results else ["no results.json of a run beside it, so the card has no results"]
    notes += [] if licence else ["no licence was named, and the card says so: --licence NAME"]
    if is_private and not private:
        notes.append(f"{repo} was private before and stays so: it is made public in its settings")
    return Pushed(f"{api.endpoint}/{repo}", str(done.oid), (*notes, *_what_shows(artifacts, said)))


def _what_shows(artifacts: list[Any], said: list[str]) -> list[str]:
    """What a reader of the repository learns beside numbers."""
    words = sum(len(str(getattr(one.spec, "text", ""))) for one in artifacts)
    found = [path for text in said for path in paths(text)]
    notes = []
    if words:
        notes.append(f"it holds {words:,} characters of text: a prompt, or demonstrations, which are rows of the data")
    if found:
        notes.append(f"{MANIFEST} holds what looks like a path on this machine: {found[0]}")
    return notes


def pull(repo: str, out: str | Path, *, revision: str | None = None) -> Pulled:
    """A repository's artifact in a new folder, whole or not at all, checked as `load` checks it.

    Only the two files of an artifact are fetched, both of one commit; nothing in the repository is run.

    Args:
        revision: a branch, tag or commit; the newest of main without it.

    Raises:
        UserError: the folder exists; the repository is not there, is not reached, or holds no whole artifact.
    """
    from huggingface_hub import HfApi

    path = Path(out)
    if os.path.lexists(path):
        raise UserError(f"{path} exists: an artifact is never overwritten. Name a new folder, or remove that one.")
    with files.errors_told(out), files.new_folder(path) as beside, TemporaryDirectory() as fetched:
        with _named(repo):
            api = HfApi()
            commit = str(api.repo_info(repo, revision=revision).sha)
            got = {name: Path(api.hf_hub_download(repo, name, revision=commit, local_dir=fetched)) for name in FILES}
        for name, file in got.items():
            files.write(beside / name, file.read_bytes())
        arm = show([artifact.spec for artifact in _loaded(beside, repo)])
    return Pulled(path, commit, arm)


def _loaded(beside: Path, repo: str) -> list[Any]:
    try:
        return load(beside)
    except UserError as problem:
        raise UserError(str(problem).replace(str(beside), repo)) from None


def _methods(artifacts: list[Any]) -> list[str]:
    return [show([artifact.spec]).partition(":")[0] for artifact in artifacts]


def auto_class(manifest: Mapping[str, Any]) -> str:
    """The class of transformers that loads the base as it was tuned."""
    from transformers.models.auto import modeling_auto as auto

    name, task = str(manifest["base"]["model_type"]), (manifest.get("about") or {}).get("task") or {}
    if name in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:  # BART and its kin are masked language models too
        return "AutoModelForSeq2SeqLM"
    if name not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "AutoModelForCausalLM"
    return "AutoModelForMaskedLM" if task.get("by") == "words" else "AutoModel"


def _results(folder: Path) -> dict[str, Any] | None:
    """results.json of the run whose best artifact the folder is; None where it is no run's."""
    place = folder.resolve().parent / "results.json"
    if not place.exists():
        return None
    results = run_folder.read_results(place.parent)
    return results if (results.get("best") or {}).get("path") == folder.resolve().name else None


@contextmanager
def _named(repo: str) -> Iterator[None]:
    """What the hub or the network refuses becomes one line; no bars are drawn."""
    from huggingface_hub import utils
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, RemoteEntryNotFoundError  # type: ignore[attr-defined]

    shown = not utils.are_progress_bars_disabled()  # type: ignore[attr-defined]
    utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    except UserError:
        raise
    except RemoteEntryNotFoundError as problem:
        raise UserError(f"{repo} holds no tunescope artifact: {_first(problem)}") from problem
    except HfHubHTTPError as problem:
        code = problem.response.status_code
        hint = " Who are you to the hub? Type: hf auth login" if code in (401, 403) else ""
        raise UserError(f"The hub refuses {repo} ({code}): {_first(problem)}{hint}") from problem
    except (HTTPError, OSError, ValueError, RuntimeError) as problem:
        raise UserError(f"{repo} cannot be reached or used: {_first(problem)}") from problem
    finally:
        if shown:
            utils.enable_progress_bars()  # type: ignore[attr-defined]


def _first(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return str(clean(lines[-1] if lines else type(problem).__name__))
