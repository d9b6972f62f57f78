"""What `tunescope check` says about data before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from tunescope.data.row import line_of, value
from tunescope.data.splits import repeats, shared
from tunescope.tasks.label_notes import label_notes
from tunescope.tasks.prompts import label_words
from tunescope.tasks.task import Encoded, Labelled, Rows, Task

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

SHOWN = 5  # line numbers kept for each finding
# models whose positions are counted from behind the padding token's id, so that so many are never used
BEHIND_PADDING = {
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer"),
    *("data2vec-text", "esm", "ibert", "lilt", "luke", "xmod"),
}


@dataclass(frozen=True)
class Lengths:
    """Token counts: the smallest, the middle one, the one that 95 % do not exceed, the largest."""

    min: int
    median: int
    p95: int
    max: int


@dataclass(frozen=True)
class Found:
    """How many rows something is true of, with the first lines."""

    rows: int
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One part of the data. ``inputs`` count a filled template with its special tokens; ``targets`` what is
    produced, () lengths None with a head. ``special`` rows hold the mark of a special or added token, such as </s>.
    ``ended`` rows have a target with the end of an answer in its middle, ``unlike`` ones another whose tokens come
    back as another text.
    """

    rows: int
    labels: dict[str, int] | None
    inputs: Lengths
    targets: Lengths | None
    too_long: Found
    repeated: Found
    in_train: Found
    input_in_train: Found
    input_in_dev: Found
    empty: Found
    special: Found
    ended: Found
    unlike: Found


@dataclass(frozen=True)
class Facts:
    """All findings; ``task`` is the prepared task, and ``notes`` what a person should look at."""

    task: Task
    parts: dict[str, Part]
    positions: int | None
    words: dict[str, tuple[str, ...]] | None
    shared_first_tokens: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def inspect(
    task: Task, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase, model_config: PretrainedConfig
) -> Facts:
    """The facts about ``splits`` ("train" and any others) under this task, tokenizer and model.

    Raises:
        UserError: whatever would also stop a run: fields, labels or label words that cannot be used.
    """
    from tunescope.models.anatomy import kind

    return facts(task.prepare(splits, tokenizer, model_kind=kind(model_config)), splits, tokenizer, model_config)


def facts(
    task: Task, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase, model_config: PretrainedConfig
) -> Facts:
    """`inspect` with a task that is prepared already."""
    from tunescope.models.anatomy import kind

    model_kind, limit = kind(model_config), positions(model_config, tokenizer)
    splits = {name: rows for name, rows in splits.items() if rows}
    parts = {
        name: _part(task, rows, _before(splits, name), tokenizer, (model_kind, limit), _written_at_most(task, name))
        for name, rows in splits.items()
    }
    words, shared_first = None, []
    if isinstance(task, Labelled) and task.in_words:
        tokens = task.word_ids(tokenizer, model_kind)
        words = {label: tuple(tokenizer.convert_ids_to_tokens(list(ids))) for label, ids in tokens.items()}
        shared_first = label_words.shared_first_tokens(tokens)
    of_labels = label_notes(task, splits) if isinstance(task, Labelled) else []
    notes = (*task.describe().get("notes", ()), *_notes(parts, limit), *of_labels)
    return Facts(task, parts, limit, words, tuple(shared_first), notes)


def positions(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """How many tokens the model takes, by its positions or by its tokenizer; None where neither says."""
    relative = getattr(config, "relative_attention_num_buckets", None) is not None
    own = getattr(config, "max_position_embeddings", None)
    if own is not None and config.model_type in BEHIND_PADDING and config.pad_token_id is not None:
        own -= config.pad_token_id + 1
    counts = [] if relative and own is None else [own, tokenizer.model_max_length]  # MPNet has both
    known = [int(count) for count in counts if count is not None and 0 < count < 10**9]
    return min(known, default=None)


def _before(splits: Mapping[str, Rows], name: str) -> tuple[Rows, Rows]:
    """The rows of train and of dev that a part must not share."""
    train = splits.get("train", []) if name != "train" else []
    return train, splits.get("dev", []) if name == "test" else []


def _written_at_most(task: Task, part: str) -> int | None:
    """The tokens of each answer that are kept free where one is written and not read; None where it is read."""
    return getattr(task, "max_new_tokens", None) if task.writes and part != "train" else None


def _part(
    task: Task,
    rows: Rows,
    before: tuple[Rows, Rows],
    tokenizer: PreTrainedTokenizerBase,
    model: tuple[str, int | None],
    most: int | None,
) -> Part:
    model_kind, limit = model
    items = task.encode(rows, tokenizer, model_kind=model_kind, train=True)
    lines = [line_of(row, index) for index, row in enumerate(rows)]
    inputs = [len(item.input_ids) for item in items]
    targets = [len(item.target_ids) for item in items]
    together = model_kind == "decoder"  # prompt and answer share the positions; the last token is never fed
    longest = _longest(task, items, tokenizer, model_kind)
    answers = [most or length for length in longest] if together else longest
    taken = [a + b - 1 if together else max(a, b) for a, b in zip(inputs, answers, strict=True)]
    texts = [[value(row, name, index) for name in task.fields()] for index, row in enumerate(rows)]
    mark, written = _marks(tokenizer), list(_written(task, rows, items, tokenizer))
    return Part(
        rows=len(rows),
        labels=task.counts(rows) if isinstance(task, Labelled) else None,
        inputs=_lengths(inputs),
        targets=_lengths(targets) if any(targets) else None,
        too_long=_found(n for n, used in zip(lines, taken, strict=True) if limit is not None and used > limit),
        repeated=_found(repeats(rows)),
        in_train=_found(shared(before[0], rows)),
        input_in_train=_found(shared(before[0], rows, task.question(), loosely=True)),
        input_in_dev=_found(shared(before[1], rows, task.question(), loosely=True)),
        empty=_found(n for n, some in zip(lines, texts, strict=True) if not all(map(str.strip, some))),
        special=_found(n for n, some in zip(lines, texts, strict=True) if any(map(mark.search, some))),
        ended=_found(n for n, (ended, _) in zip(lines, written, strict=False) if ended),
        unlike=_found(n for n, (_, unlike) in zip(lines, written, strict=False) if unlike),
    )


def _longest(task: Task, items: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase, model_kind: str) -> list[int]:
    """The tokens of each row's answer; where each of several is read behind the row, those of the longest."""
    words = task.word_ids(tokenizer, model_kind).values() if isinstance(task, Labelled) and task.in_words else ()
    return [max(map(len, (item.target_ids, *words, *getattr(item, "tokens", ())))) for item in items]


def _written(
    task: Task, rows: Rows, items: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[bool, bool]]:
    """Of each row whose target is written: whether an answer would end in its middle; else, whether the text of its
    tokens is another one, runs of white space taken as one space. Nothing, where none is."""
    from tunescope.tasks.answers.decode import text_of

    field, turns = getattr(task, "target", None), getattr(task, "turns", None)
    if not task.writes or field is None:
        return
    ends = {tokenizer.eos_token_id, turns.stop if turns else None} - {None}
    folded = str.lower if getattr(task, "lowercase", False) else str
    for index, (row, item) in enumerate(zip(rows, items, strict=True)):
        ids = item.target_ids
        behind = ids[next((at + 1 for at, token in enumerate(ids) if token in ends), len(ids)) :]
        ended = bool(behind and text_of(tokenizer, behind, ()))
        given, back = value(row, field, index), text_of(tokenizer, ids, ends)
        yield ended, not ended and folded(back).split() != folded(given).split()


def _marks(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """What a text holds that is read as a token of its own and not as words: special tokens, and added ones that look
    like a mark, such as <think>. An added word is read as that word, so it is none."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    marks = {*tokenizer.all_special_tokens, *(one.content for one in added if one.special or _is_mark(one.content))}
    return re.compile("|".join(re.escape(mark) for mark in sorted(marks) if mark) or r"(?!)")


def _is_mark(text: str) -> bool:
    """Whether a bracket or a bar stands at an end of it, beside more."""
    bare = text.strip()
    return len(bare) > 1 and (bare[0] in "<[|" or bare[-1] in ">]|")


def _lengths(counts: Sequence[int]) -> Lengths:
    ordered = sorted(counts)

    def at(share: float) -> int:
        return ordered[ceil(share * len(ordered)) - 1]

    return Lengths(ordered[0], at(0.5), at(0.95), ordered[-1])


def _found(lines: Iterable[int]) -> Found:
    every = tuple(lines)
    return Found(len(every), every[:SHOWN])


def _notes(parts: Mapping[str, Part], limit: int | None) -> list[str]:
    texts = {
        "too_long": f"are longer than the model's {limit} positions; what is too much of them will be cut",
        "repeated": "repeat an earlier row exactly",
        "in_train": "are also in train, exactly",
        "input_in_train": "have an input that is also in train, case, blanks and forms of characters aside",
        "input_in_dev": "have an input that is also in dev, case, blanks and forms of characters aside",
        "empty": "have an empty input field",
        "special": "contain the mark of a special or added token, which the tokenizer will read as that token",
        "ended": "have a target that holds the end of an answer, so that what stands behind it is never written",
        "unlike": "have a target that the tokenizer cannot write: its tokens come back as another text",
    }
    notes = []
    for name, part in parts.items():
        for finding, text in texts.items():
            found: Found = getattr(part, finding)
            if finding == "input_in_train" and found.rows == part.in_train.rows:
                continue
            if found.rows:
                lines = ", ".join(map(str, found.lines)) + (", ..." if found.rows > len(found.lines) else "")
                notes.append(f"{found.rows} of {part.rows} {name} rows {text} (lines {lines}).")
    return notes
