"""Open what a plan names, model, rows and task, and check that they go together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tunescope.attachment.guards.marks import check_bare
from tunescope.attachment.share import share
from tunescope.data.corpus_name import parsed, scored_by
from tunescope.data.k_shot import k_shots
from tunescope.data.read import read_hashed
from tunescope.data.row import MissingField, every_row, value
from tunescope.data.shares import LabelOf
from tunescope.data.splits import Splits, split
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.models.fingerprint import fingerprint
from tunescope.models.load import load_model
from tunescope.models.load_options import QUANTISED, check_here, is_placed, loading
from tunescope.models.looks_back import check_looks_back
from tunescope.models.split import is_initialized
from tunescope.system import machine, ranks, shell
from tunescope.tasks.make import field_advice, has_field, make_task
from tunescope.tasks.prompts import languages
from tunescope.tasks.prompts.day import on_day
from tunescope.tasks.task import labelled
from tunescope.trial.bench import Bench, room
from tunescope.trial.identity import asked_with
from tunescope.trial.plan import PARTS, Plan

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tunescope.tasks.task import Task


def open_bench(
    plan: Plan,
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    task: Task | None = None,
) -> Bench:
    """Load and check everything; objects that are given are used as they are.

    Raises:
        UserError: the device, the model, a file, a row or the task cannot be used.
    """
    device = machine.device_named(plan.device)
    try:
        return _opened(plan, model, tokenizer, task, device)
    except MissingField as problem:
        if task is not None or not (advice := field_advice(plan.task, problem.field, problem.close)):
            raise
        raise UserError(f"{problem} {advice}") from None


def _opened(
    plan: Plan,
    model: PreTrainedModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
    task: Task | None,
    device: torch.device,
) -> Bench:
    if model is None and tokenizer is not None:
        raise UserError(
            f"A tokenizer is given with a model that is named, {plan.model}, which brings its own. Leave it out, or "
            "load the model and give both: compare(model, data, tokenizer=tokenizer)."
        )
    found = {part: read_hashed(path, plan.longest_field) for part, path in plan.data.items()}
    parts, hashes = {part: one[0] for part, one in found.items()}, {part: one[1] for part, one in found.items()}
    if model is None:
        model, tokenizer = _loaded(plan, task, device)
    elif plan.load or plan.device_map:
        option = "load" if plan.load else "device_map"
        raise UserError(f"{option}={getattr(plan, option)!r} is for a model that is named: this one is loaded already.")
    else:
        check_bare(model)
        check_looks_back(plan.model, model)
    is_shared = ranks.begun_count() > 1 and is_initialized()
    stays = is_shared or plan.load in QUANTISED or plan.device_map
    model, device = (model, device) if stays else _at(model, device)
    model.eval()
    if plan.gradient_checkpointing:
        _checkpoint(model)
    tokenizer = on_day(tokenizer, plan.day)
    model_kind = anatomy(model).kind
    task = task if task is not None else make_task(_with_metric(plan), model_kind)
    if model_kind == "encoder":
        _check_head(model, task)
    draws = {seed: _with_notes(drawn, parts) for seed, drawn in _draws(plan, task, parts).items()}
    splits = draws[plan.seeds[0]] if draws else _with_notes(_cut(task, parts), parts)
    tokenizer = languages.with_languages(tokenizer, task)
    for seed in plan.seeds[1:] if draws else ():  # what cannot be used of theirs is found now, too
        task.prepare(draws[seed].parts(), tokenizer, model_kind=model_kind)
    task = task.prepare(splits.parts(), tokenizer, model_kind=model_kind)
    bench = Bench(plan, model, tokenizer, model_kind, task, splits, hashes, fingerprint(model), device, draws)
    if is_shared:
        asked_with(bench)  # hashed while the model is whole
        share(model, plan.parallel, device)
    for part in PARTS:  # a row that cannot be used is found now, not in every arm
        bench.encoded(part, room=room(bench, 0))
    _check_answers(bench)
    return bench


def _at(model: PreTrainedModel, device: torch.device) -> tuple[PreTrainedModel, torch.device]:
    """The model on the device; one that stays where it was loaded, with its own. UserError where that is no device."""
    check_here(model)
    return (model, model.device) if is_placed(model) else (model.to(device), device)


def _loaded(plan: Plan, task: Task | None, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    by = plan.task.get("by") if task is None else getattr(task, "by", None)
    given = loading(plan.load, plan.device_map, str(device))
    model, tokenizer = load_model(plan.model, in_words=by == "words", given=given)
    check_here(model)
    return model, tokenizer


def _cut(task: Task, parts: Mapping[str, Any]) -> Splits:
    same = task.question()  # rows that ask the same go to one part, whatever else they hold
    for rows in parts.values():
        _check_fields(rows, task.fields())
    label_of = labelled(task).label_of if task.is_labelled else None
    found = split(parts["train"], parts.get("dev"), parts.get("test"), by=same, label_of=label_of)
    wanted = [part for part in PARTS if part not in parts]
    if label_of is not None and wanted and not found.by_label:
        _check_labels_stay(parts["train"], found.train, label_of, wanted)
    return found


def _check_labels_stay(
    rows: Sequence[Mapping[str, Any]], train: Sequence[Mapping[str, Any]], label_of: LabelOf, wanted: Sequence[str]
) -> None:
    """UserError where a cut without regard to labels, of too few rows, leaves one of them none to train on."""
    labels = set(every_row(rows, label_of))
    lost = sorted(labels - set(every_row(train, label_of)))
    if lost:
        raise UserError(
            f"{len(rows):,} rows with {len(labels):,} labels are too few for {' and '.join(wanted)} to be cut out of "
            f"them: label {lost[0]!r} would have no row left to train on. Give more rows of each label, or a file for "
            f"each part: {' '.join(f'--{part} FILE' for part in wanted)}{_of_a_scale(labels, len(rows))}"
        )


def _of_a_scale(labels: set[str], rows: int) -> str:
    """What numbers on a scale are taken for, where most rows have one of their own."""
    numbers = [label for label in labels if re.fullmatch(r"-?\d+\.\d+", label)]
    if 2 * len(numbers) < rows:
        return ""
    return ". A number is a class's name here, near to no other: sort them into classes first, as low, middle and high"


def _checkpoint(model: PreTrainedModel) -> None:
    if not model.supports_gradient_checkpointing:
        raise UserError(
            f"--gradient-checkpointing: transformers has none for family {model.config.model_type!r}. Leave it out, or "
            "type: --accumulate 4"
        )
    begin = (
        getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    )  # its old name
    begin({"use_reentrant": False})


def _with_metric(plan: Plan) -> Mapping[str, Any]:
    """The task as asked; where texts are written and no metric is named, with that of the corpus."""
    named = plan.task["kind"]
    if not has_field(named, "metric") or "metric" in plan.task:
        return plan.task
    of_corpus = scored_by(plan.data["train"])
    return {**{name: value for name, value in of_corpus.items() if has_field(named, name)}, **plan.task}


def _check_fields(rows: Sequence[Mapping[str, Any]], fields: Iterable[str]) -> None:
    """UserError for a row without one of the fields, which would be cut as if all were equal."""
    for name in fields:
        every_row(rows, partial(_field, name))


def _field(name: str, row: Mapping[str, Any], index: int) -> str:
    return value(row, name, index)


def _check_answers(bench: Bench) -> None:
    """UserError for an answer longer than the decoder of an encoder-decoder has positions, or that may become so."""
    limit = room(bench, 0)
    if limit is None or bench.kind != "encoder-decoder" or not bench.task.writes:
        return
    for part in PARTS:
        rows = getattr(bench.splits, part)
        encoded = bench.encoded(part, room=limit)
        longest = max(encoded, key=lambda row: len(row.target_ids), default=None)
        if longest is not None and len(longest.target_ids) > limit:
            name = getattr(rows[0], "file", part)
            raise UserError(
                f"{name} line {longest.row}: the answer has {len(longest.target_ids)} tokens, and the decoder of "
                f"{bench.model.config.model_type!r} {limit} positions. Shorten the answer or leave the row out."
            )
    if bench.task.max_new_tokens and bench.task.max_new_tokens > limit:
        raise UserError(
            f"Answers of {bench.task.max_new_tokens} tokens are more than the {limit} positions of "
            f"{bench.model.config.model_type!r}; type: --max-new-tokens {limit}"
        )


def _with_notes(splits: Splits, parts: Mapping[str, Any]) -> Splits:
    """The splits, with what the readers of corpora say of their rows in front of the notes."""
    of_corpora = [note for rows in parts.values() for note in getattr(rows, "notes", ())]
    return replace(splits, notes=(*of_corpora, *splits.notes))


def _draws(plan: Plan, task: Task, parts: Mapping[str, Any]) -> dict[int, Splits]:
    """Seed -> its K-shot parts; none without --k-shot."""
    if plan.k_shot is None:
        return {}
    if not task.is_labelled:
        raise UserError("--k-shot draws rows of each label, and this task has none: it is for --task classification.")
    if "dev" in parts or "test" not in parts:
        corpus = parsed(plan.data["train"]) is not None and {"dev", "test"} <= set(parts)  # a folder brings its own
        named = shell.join([plan.data["train"], "--test", plan.data["test"]]) if corpus else ""
        raise UserError(
            "--k-shot draws the training and the development rows from DATA, and tests on rows of their own: give "
            + (f"no --dev, and of a corpus the parts alone: {named}" if corpus else "--test FILE and no --dev.")
        )
    for rows in parts.values():
        _check_fields(rows, task.fields())
    return k_shots(
        parts["train"], parts["test"], labelled(task).label_of, task.fields(), k=plan.k_shot, seeds=plan.seeds
    )


def _check_head(model: PreTrainedModel, task: Task) -> None:
    """UserError for an encoder without the masked-language-model head that the task asks, or with one it does not."""
    has_words = model.get_output_embeddings() is not None
    if has_words == (getattr(task, "by", "head") == "words"):
        return
    if has_words:
        raise UserError(
            f"by='head' trains a head of its own on a bare encoder, and {type(model).__name__} answers in words. Load "
            "it with transformers.AutoModel, or type: by='words'"
        )
    raise UserError(
        f"by='words' needs a masked language model, and {type(model).__name__} has no head that gives words. Load it "
        "with transformers.AutoModelForMaskedLM, or type: by='head'"
    )
