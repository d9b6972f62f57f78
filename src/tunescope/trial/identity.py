"""What a run's answer depends on beside its plan, as hashes, and the folder that is named by it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.models import load
from tunescope.models.fingerprint import fingerprint, hash_tensors
from tunescope.models.load import load_model
from tunescope.system import run_folder
from tunescope.tasks.prompts.day import undated
from tunescope.trial import plan, plan_json
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Plan

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RUNS = "runs"  # the folder of those that are named by their question
OF_LOADING = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "_commit_hash"}


def asked_with(bench: Bench) -> dict[str, str]:
    """What an answer depends on beside the base's weights: hashes of tokenizer, config and layers behind the base.

    And how dev and test were cut out of the training file, where that hangs on the labels.
    """
    if not bench.asked_with:
        base = {id(value) for value in bench.model.base_model.parameters()}
        own = {name: value for name, value in bench.model.named_parameters() if id(value) not in base}
        behind = own if bench.task.needs_head is None else {}  # a new head stands in for what is there
        config = {key: value for key, value in bench.model.config.to_dict().items() if key not in OF_LOADING}
        parts = {
            "tokenizer": tokenizer_state(bench.tokenizer),
            "config": json.dumps(config, sort_keys=True, default=str),
        }
        hashed = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in parts.items()}
        cut = {"cut": "by label"} if bench.splits.by_label else {}  # parts of one file were once cut without them
        bench.asked_with = hashed | {"behind": hash_tensors(behind)} | cut
    return dict(bench.asked_with)


def tokenizer_state(tokenizer: PreTrainedTokenizerBase) -> str:
    """All that decides a text's ids, but for what a call sets (padding, truncation)."""
    own = {"vocabulary": sorted(tokenizer.get_vocab().items()), "special": tokenizer.special_tokens_map}
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        own |= {"backend": {**json.loads(backend.to_str()), "padding": None, "truncation": None}}
    return json.dumps(own, sort_keys=True, default=str)


def tokenizer_settings(tokenizer: PreTrainedTokenizerBase) -> str:
    """Where a text is cut and how turns are written. No part of a job's id, for earlier versions had it not there."""
    return json.dumps([tokenizer.model_max_length, undated(tokenizer)], sort_keys=True)


def encoder_print(bench: Bench, encoder: str) -> str:
    """The fingerprint of another encoder, which a run that asks it what is alike depends on."""
    if encoder not in bench.encoders:
        bench.encoders[encoder] = fingerprint(load_model(encoder)[0])
    return bench.encoders[encoder]


def default_folder(question: Plan, kind: str = "", asked: Sequence[Any] = ()) -> Path:
    """runs/[KIND-]MODEL-DATA-HASH: the same question comes back to the same folder.

    asked: what a question of this kind has beside the plan.
    """
    name = f"{load.model_name(question.model)}-{Path(question.data['train']).name.partition('.')[0]}"
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
    left_out = (*plan.AFTERWARDS, "apart")
    fields = {name: value for name, value in plan_json.to_json(question).items() if name not in left_out}
    if question.pilot_of:
        fields["pilot_of"] = {name: value for name, value in fields["pilot_of"].items() if name != "max_seeds"}
    for name in ("load", "dev_share", "fit", "day", "chosen_precision"):
        if not getattr(question, name):
            fields.pop(name)  # which earlier versions did not have
    kind = kind or in_minutes(question)
    known = fields | ({"asked": [kind, *asked]} if kind else {})
    return Path(RUNS) / f"{f'{kind}-' if kind else ''}{safe[:60]}-{run_folder.identity(known)[:8]}"


def in_minutes(question: Plan) -> str:
    """The kind of a question that is cut to fit its minutes; "" for others."""
    return "" if question.minutes is None or question.pilot_of else f"{question.minutes:g}-minutes"
