"""What arms do inside attention on a few development rows: numbers for the verdict, pictures for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.system import files, run_folder
from tunescope.trial.train.loop import memory_errors_named
from tunescope.trial.train.microbatches import OutOfMemory

if TYPE_CHECKING:
    from tunescope.attachment.attached import Attached
    from tunescope.comparison.entry import Entry
    from tunescope.probes.seen import Seen
    from tunescope.report.finding import AttentionMap
    from tunescope.tasks.task import Encoded
    from tunescope.trial.bench import Bench

ROWS = 8
LARGEST = 2**31  # bytes that the attention of one row may take
LONGEST = 32  # tokens of the pictured row


def mechanism(bench: Bench, rows: Sequence[Any], tuned: Attached) -> dict[str, Any]:
    """`tunescope.probes.mechanism` on the first rows that have room for it, input and target together as in training.

    Where they cannot be looked at, None and the reason.
    """
    from tunescope.probes import mechanism as probing

    def look() -> dict[str, Any]:
        inputs = _inputs(bench, _whole(bench, rows, tuned), with_target=True)
        return probing.mechanism(bench.model, tuned, inputs)

    found = _looked(look)
    return {name: found.get(name) for name in ("content_pattern_shift", "context_share", "reason")}


def _looked(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it finds, or {"reason": why it found nothing}: no arm's score hangs on it, even where that is our fault."""
    try:
        with memory_errors_named():
            return look()
    except OutOfMemory as problem:
        return {"reason": f"out of memory: {problem}"}
    except UserError as refusal:
        return {"reason": str(refusal)}
    except Exception as problem:
        if files.disk_problem(problem):
            raise
        return {"reason": " ".join(f"{type(problem).__name__}: {problem}".split())}


def _whole(bench: Bench, rows: Sequence[Any], tuned: Attached) -> list[Any]:
    """Rows are cut for decoding: with an answer longer than that allows for, not every one has a place in the model."""
    from tunescope.probes.mechanism import bytes_of
    from tunescope.trial.bench import room

    most = room(bench, tuned.positions)
    joined = bench.kind == "decoder"

    def length(row: Encoded) -> int:
        answer = len(row.target_ids) + len(row.lead)
        return len(row.input_ids) + answer - 1 if joined else max(len(row.input_ids), answer)

    fit = [row for row in rows if most is None or length(row) <= most]
    if not fit:
        raise UserError(f"no development row fits into {most} positions with its answer")
    small = [row for row in fit if bytes_of(bench.model, length(row)) <= LARGEST][:ROWS]
    if not small:
        raise UserError(f"every development row has more than {LARGEST / 2**30:g} GB of attention to look at")
    return small


def pictures(bench: Bench, entries: Sequence[Entry], folder: Path) -> dict[str, Any]:
    """Plain data for the page: the best context's share by layer and head; and one head, that in which the best delta
    moved attention over the text most, in the bare model, under that context and under that delta.

    "figure": whole attention, contexts included, in whole runs; the last query, which decides the answer's first
    token, is marked. "pairs": over the text alone, before and after, each layer's inputs held. {"reason": why} where
    there is nothing to show.
    """
    return _looked(lambda: _pictures(bench, entries, folder))


def _pictures(bench: Bench, entries: Sequence[Entry], folder: Path) -> dict[str, Any]:
    best = {group: _best(entries, group) for group in ("context", "delta")}
    seen = {group: _seen(bench, one, folder) for group, one in best.items() if one is not None}
    if not seen or any(one.no_bare for one in seen.values()):
        return {"reason": next((one.no_bare for one in seen.values()), "no context or delta was trained")}
    name, head = _moved_most(seen.get("delta") or seen["context"])
    named = {group: one.standing.name for group, one in best.items() if one is not None}
    return {
        "reason": "",
        "layer": name,
        "head": head,
        "shares": _shares(seen["context"], named["context"]) if "context" in seen else None,
        "figure": _figure(seen, named, name, head),
        "pairs": [_pair(one, named[group], name, head) for group, one in seen.items()],
    }


def _best(entries: Sequence[Entry], group: str) -> Entry | None:
    """Of that group's arms that were trained, the best by its development score."""
    own = [one for one in entries if one.standing.group == group and one.standing.trials]
    trained = [one for one in own if one.standing.dev is not None]
    return max(trained, key=lambda one: one.standing.dev or 0.0, default=None)


def _seen(bench: Bench, one: Entry, folder: Path) -> Seen:
    """The arm's artifact of the first seed on the shortest development row, which it asks as it was scored, its answer
    left out."""
    from tunescope.attachment.artifact_folder import load
    from tunescope.attachment.attached import Attached
    from tunescope.comparison.problem import attached
    from tunescope.comparison.score import rows_of
    from tunescope.probes.see import see

    todo = next(run for run in one.runs if run.id == one.standing.runs[0]["id"])
    own = bench.at(todo.seed)
    lengths = [len(row.input_ids) for row in own.encoded("dev", room=None)]
    shortest = lengths.index(min(lengths))
    with attached(own, todo, load(run_folder.folder(folder, todo.id) / "artifact")) as tuned:
        assert isinstance(tuned, Attached)  # a trained arm has artifacts
        row = rows_of(own, todo, tuned, "dev")[shortest]
        return see(bench.model, tuned, _inputs(bench, [row], with_target=False), bench.tokenizer)


def _moved_most(seen: Seen) -> tuple[str, int]:
    """The attention module and head whose own pattern over the text is furthest from the bare one."""
    from tunescope.probes.looks.pattern import between

    moved = {
        name: layer.at_real(between(seen.bare[name], layer).total_variation).nanmean(-1).nan_to_num(0.0)
        for name, layer in seen.held.items()
    }
    name = max(moved, key=lambda one: float(moved[one].max()))
    return name, int(moved[name].argmax())


def _shares(seen: Seen, arm: str) -> dict[str, Any]:
    from tunescope.report.finding import HeatMap

    heads = {name: layer.at_real(layer.share).mean(-1) for name, layer in seen.along.items() if layer.n_context}
    columns = [f"head {head}" for head in range(max(map(len, heads.values()), default=0))]
    title = f"Share of attention on the context, {arm}"
    return asdict(HeatMap(title, list(heads), columns, _rounded([one.tolist() for one in heads.values()])))


def _figure(seen: Mapping[str, Seen], named: Mapping[str, str], name: str, head: int) -> list[dict[str, Any]]:
    from tunescope.probes.seen import attention_map

    first = next(iter(seen.values()))
    maps = [("the model as it is", attention_map(first, "bare", name, head))]
    maps += [(f"with {named[group]}", attention_map(one, "along", name, head)) for group, one in seen.items()]
    return [_as_json(one, title) for title, one in maps]


def _pair(seen: Seen, arm: str, name: str, head: int) -> dict[str, Any]:
    from tunescope.probes.seen import attention_map

    before, after = (attention_map(seen, run, name, head, content=True) for run in ("bare", "held"))
    title = f"Attention over the text alone, {arm}"
    return {"title": title, "before": _as_json(before, "before"), "after": _as_json(after, f"with {arm}")}


def _as_json(one: AttentionMap, title: str) -> dict[str, Any]:
    return asdict(one) | {"title": title, "values": _rounded(one.values)}


def _rounded(values: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[round(value, 3) if value == value else 0.0 for value in row] for row in values]


def _inputs(bench: Bench, rows: Sequence[Any], *, with_target: bool) -> dict[str, Any]:
    from tunescope.tasks.answers import batches, likelihood

    pad, device = batches.pad_id(bench.tokenizer), bench.device
    joined = bench.kind == "decoder" and with_target
    texts = [[*row.input_ids, *(row.target_ids[:-1] if joined else ())] for row in rows]
    texts = texts if with_target else [one[-LONGEST:] for one in texts]
    ids, mask = batches.padded(texts, pad, device, left=False)
    given = {"input_ids": ids, "attention_mask": mask}
    if bench.kind == "encoder-decoder":
        start = likelihood.decoder_start(bench.model)
        answers = [[start, *row.lead, *(row.target_ids[:-1] if with_target else ())] for row in rows]
        ids, mask = batches.padded(answers, pad, device, left=False)
        given |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
    return given
