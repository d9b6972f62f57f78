"""What the arm runs of one process share: the model, the data, the task."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from tunescope.comparing.plan import PARTS, Plan, one_of
from tunescope.errors import UserError
from tunescope.loading import load_model

OF_LOADING = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "_commit_hash"}


@dataclass
class Bench:
    """A model and data that arms are tried on. `encoded` keeps the tokenised rows, which most arms share.

    shown: demonstrations that were found, by what was asked for; and fingerprints of encoders that say what is alike.
    """

    plan: Plan
    model: Any
    tokenizer: Any
    kind: str
    task: Any
    splits: Any
    sha256: Mapping[str, str]
    fingerprint: str
    device: torch.device
    draws: Mapping[int, Any] = field(default_factory=dict)  # with --k-shot, the parts that each seed draws
    cache: dict[tuple[str, str, bool, int | None], list[Any]] = field(default_factory=dict)
    means: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    by_seed: dict[int, "Bench"] = field(default_factory=dict)

    def at(self, seed: int) -> "Bench":
        """What a run of that seed sees: this bench, or with --k-shot one with the rows that the seed draws."""
        if seed not in self.draws:
            return self
        if seed not in self.by_seed:
            tested = {key: found for key, found in self.means.items() if key[0] == "test"}  # the same for every seed
            own: dict[str, Any] = {"cache": {}, "means": tested, "shown": {}, "by_seed": {}}
            self.by_seed[seed] = replace(self, splits=self.draws[seed], draws={}, **own)
        return self.by_seed[seed]

    def encoded(self, part: str, *, bos: bool, room: int | None, task: Any = None) -> list[Any]:
        """The rows of a part, as the bench's task or another one asks them."""
        task = task or self.task
        key = (repr(task), part, bos, room)
        if key not in self.cache:
            rows = self.splits.parts()[part]
            self.cache[key] = task.encode(
                rows, self.tokenizer, model_kind=self.kind, bos=bos, train=part == "train", room=room
            )
        return self.cache[key]

    def states(self, part: str, encoder: str = "") -> torch.Tensor:
        """(rows, width): mean states of the encoded rows by the frozen model, to which nothing may be attached.

        encoder: the folder or name of another model that reads the rows' fields instead, without the template.
        """
        from tunescope.tasks.states import mean_states, text_states

        if (part, encoder) in self.means:
            return self.means[part, encoder]
        left = room(self, 0)
        if not encoder:
            rows = [row.input_ids for row in self.encoded(part, bos=True, room=left)]
            self.means[part, ""] = mean_states(self.model, rows, self.tokenizer)
            return self.means[part, ""]
        model, tokenizer = load_model(encoder)
        for name in PARTS:
            if (name, encoder) in self.means:
                continue
            texts = [row.source.replace("\t", " ") for row in self.encoded(name, bos=True, room=left)]
            self.means[name, encoder] = text_states(model.to(self.device).eval(), texts, tokenizer)
        return self.means[part, encoder]


def asked_with(bench: Bench) -> dict[str, str]:
    """What an answer depends on beside the base's weights: hashes of tokenizer, config and layers behind the base."""
    from tunescope.artifact import hash_tensors

    if "asked with" not in bench.shown:
        base = {id(value) for value in bench.model.base_model.parameters()}
        own = {name: value for name, value in bench.model.named_parameters() if id(value) not in base}
        behind = own if bench.task.needs_head is None else {}  # a new head stands in for what is there
        config = {key: value for key, value in bench.model.config.to_dict().items() if key not in OF_LOADING}
        parts = {
            "tokenizer": tokenizer_state(bench.tokenizer),
            "config": json.dumps(config, sort_keys=True, default=str),
        }
        hashed = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in parts.items()}
        bench.shown["asked with"] = hashed | {"behind": hash_tensors(behind)}
    return dict(bench.shown["asked with"])


def tokenizer_state(tokenizer: Any) -> str:
    """All that decides a text's ids, but for what a call sets (padding, truncation)."""
    own = {"vocabulary": sorted(tokenizer.get_vocab().items()), "special": tokenizer.special_tokens_map}
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        own |= {"backend": {**json.loads(backend.to_str()), "padding": None, "truncation": None}}
    return json.dumps(own, sort_keys=True, default=str)


def encoder_print(bench: Bench, encoder: str) -> str:
    """The fingerprint of another encoder, which a run that asks it what is alike depends on."""
    from tunescope.artifact import fingerprint

    if (key := f"fingerprint of {encoder}") not in bench.shown:
        bench.shown[key] = fingerprint(load_model(encoder)[0])
    return str(bench.shown[key])


def open_bench(plan: Plan, model: Any = None, tokenizer: Any = None, task: Any = None) -> Bench:
    """Load and check everything; objects that are given are used as they are.

    Raises:
        UserError: the model, a file, a row or the task cannot be used.
    """
    from tunescope import tasks
    from tunescope.artifact import fingerprint
    from tunescope.sites import kind
    from tunescope.tasks import languages

    parts = {part: tasks.read(path) for part, path in plan.data.items()}
    hashes = {part: tasks.sha256(path) for part, path in plan.data.items()}
    if model is None:
        by = plan.task.get("by") if task is None else getattr(task, "by", None)
        model, tokenizer = load_model(plan.model, in_words=by == "words")
    device = torch.device(plan.device)
    model = model.to(device).eval()
    model_kind = kind(model)
    task = task if task is not None else make_task(_with_metric(plan), model_kind)
    if model_kind == "encoder":
        _check_head(model, task)
    draws = _draws(plan, task, parts)
    same = task.fields()  # rows of one input go to one part, whatever else they hold
    for rows in parts.values():
        _check_fields(rows, same)
    cut = partial(tasks.split, parts["train"], parts.get("dev"), parts.get("test"), by=same)
    splits = draws[plan.seeds[0]] if draws else cut()
    splits, draws = _told(splits, parts), {seed: _told(drawn, parts) for seed, drawn in draws.items()}
    tokenizer = languages.told(tokenizer, task)
    task = task.prepare(splits.parts(), tokenizer, model_kind=model_kind)
    bench = Bench(plan, model, tokenizer, model_kind, task, splits, hashes, fingerprint(model), device, draws)
    for part in PARTS:  # a row that cannot be used is found now, not in every arm
        bench.encoded(part, bos=True, room=room(bench, 0))
    _check_answers(bench)
    return bench


def _with_metric(plan: Plan) -> Mapping[str, Any]:
    """The task as asked; where texts are written and no metric is named, with that of the corpus."""
    from tunescope.gathering.spec import scored_by

    if plan.task["kind"] != "generation" or "metric" in plan.task:
        return plan.task
    return {**scored_by(plan.data["train"]), **plan.task}


def _check_fields(rows: Any, fields: Iterable[str]) -> None:
    """UserError for a row without one of the fields, which would be cut as if all were equal."""
    from tunescope.tasks.reading import value

    for index, row in enumerate(rows):
        for name in fields:
            value(row, name, index)


def _check_answers(bench: Bench) -> None:
    """UserError for an answer longer than the decoder of an encoder-decoder has positions, or that may become so."""
    limit = room(bench, 0)
    if limit is None or bench.kind != "encoder-decoder" or not bench.task.writes:
        return
    for part in PARTS:
        rows = getattr(bench.splits, part)
        encoded = bench.encoded(part, bos=True, room=limit)
        longest = max(encoded, key=lambda row: len(row.target_ids), default=None)
        if longest is not None and len(longest.target_ids) > limit:
            name = getattr(rows[0], "file", part)
            raise UserError(
                f"{name} line {longest.row}: the answer has {len(longest.target_ids)} tokens, and the decoder of "
                f"{bench.model.config.model_type!r} {limit} positions. Shorten the answer or leave the row out."
            )
    if bench.task.max_new_tokens > limit:
        raise UserError(
            f"Answers of {bench.task.max_new_tokens} tokens are more than the {limit} positions of "
            f"{bench.model.config.model_type!r}; type: --max-new-tokens {limit}"
        )


def _told(splits: Any, parts: Mapping[str, Any]) -> Any:
    """The splits, with what the readers of corpora say of their rows in front of the notes."""
    told = [note for rows in parts.values() for note in getattr(rows, "notes", ())]
    return replace(splits, notes=(*told, *splits.notes))


def _draws(plan: Plan, task: Any, parts: Mapping[str, Any]) -> dict[int, Any]:
    """Seed -> its K-shot parts; none without --k-shot."""
    from tunescope.tasks import Classification
    from tunescope.tasks.few_shot import k_shots

    if plan.k_shot is None:
        return {}
    if not isinstance(task, Classification):
        raise UserError("--k-shot draws rows of each label, and this task has none: it is for --task classification.")
    if "dev" in parts or "test" not in parts:
        raise UserError(
            "--k-shot draws the training and the development rows from DATA, and tests on rows of their own: give "
            "--test FILE and no --dev."
        )
    for rows in parts.values():
        _check_fields(rows, task.fields())
    return k_shots(parts["train"], parts["test"], task.label_of, task.fields(), k=plan.k_shot, seeds=plan.seeds)


def make_task(given: Mapping[str, Any], model_kind: str) -> Any:
    """{"kind": "classification", field: value, ...} -> the task, with a template and a way of answering to suit.

    Raises:
        UserError: a kind or field that does not exist.
    """
    from pydantic import TypeAdapter, ValidationError

    from tunescope import tasks

    kinds: dict[str, Any] = {
        "classification": tasks.Classification,
        "generation": tasks.Generation,
        "reasoning": tasks.Reasoning,
    }
    fields = dict(given)
    name = fields.pop("kind")
    one_of("task", name, list(kinds))
    if name == "classification":
        encoder = model_kind == "encoder"
        by = fields.setdefault("by", "head" if encoder else "words")
        end = "" if by == "head" else " It was {mask}." if encoder else "\nLabel:"
        fields.setdefault("template", f"{{{fields.get('text', 'text')}}}" + end)
    else:
        asked = "Q: {%s}\nA:" if name == "reasoning" else "{%s}\n"
        fields.setdefault("template", asked % fields.get("input", "input"))
    try:
        return TypeAdapter(kinds[name]).validate_python(fields)
    except ValidationError as problem:
        first = problem.errors()[0]
        own = first.get("ctx", {}).get("error")
        if isinstance(own, UserError):
            raise own from None
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"task {name}: '{where}' cannot be used: {first['msg'].lower()}.") from None


def _check_head(model: Any, task: Any) -> None:
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


def room(bench: Bench, taken: int) -> int | None:
    """How many positions a row may use beside a context that takes `taken`; None where the model has no limit.

    Raises:
        UserError: the context alone fills the model.
    """
    from tunescope.tasks.checking import positions

    limit = positions(bench.model.config, bench.tokenizer)
    if limit is not None and taken >= limit:
        raise UserError(f"the context takes {taken} positions and the model has {limit}; make it shorter.")
    return None if limit is None else limit - taken
