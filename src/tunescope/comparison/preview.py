"""`tunescope check` in words: what is in the data, and what a comparison would take."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tunescope.comparison import other_text, time_limit
from tunescope.comparison.costs import Costs
from tunescope.comparison.estimate import HOW, Estimate, estimates
from tunescope.comparison.few_test_rows import few_test_rows
from tunescope.comparison.own_sizes import own_sizes
from tunescope.comparison.progress import duration
from tunescope.comparison.time_cuts import Time, TooShort, reserve
from tunescope.report.verdict.words import PAIR
from tunescope.system import machine, shell
from tunescope.tasks.facts import Lengths
from tunescope.trial.bench import Bench, room
from tunescope.trial.command import command
from tunescope.trial.plan import Plan
from tunescope.trial.provenance import facts_of, notes_of

USUAL = 20.0  # minutes, where none are given
SHOWN = 600  # characters of a row


def lines(bench: Bench, workers: int = 1) -> Iterator[str]:
    """Line by line, since the estimates take a while. workers: that a comparison would have."""
    other_text.windows(bench)
    facts = facts_of(bench)
    yield from (f"note: {note}" for note in bench.splits.notes)
    for name, part in facts.parts.items():
        yield f"{name}: {part.rows:,} rows; input tokens {_lengths(part.inputs)}" + (
            f"; target tokens {_lengths(part.targets)}" if part.targets else ""
        )
        if part.labels:
            yield "  labels: " + ", ".join(f"{label} {count:,}" for label, count in part.labels.items())
    if facts.positions:
        yield f"the model takes {facts.positions:,} tokens, its context included"
    for label, tokens in (facts.words or {}).items():
        yield f"label word of {label!r}: {' '.join(tokens)} ({len(tokens)} token{'s' * (len(tokens) > 1)})"
    yield _read(bench)
    yield from _template_told(bench)
    yield from _chat_told(bench)
    notes = (*notes_of(bench), *few_test_rows(bench))
    yield from (f"note: {note}" for note in notes if note not in bench.splits.notes)
    yield from _estimated(bench, workers)


def _read(bench: Bench) -> str:
    """The first training row as its tokens read, special ones too, and what is to be answered."""
    row = bench.encoded("train", room=room(bench, 0))[0]
    text, answer = (
        json.dumps(bench.tokenizer.decode(ids), ensure_ascii=False) for ids in (row.input_ids, row.target_ids)
    )
    shown = text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2 :]}"
    return f"line {row.row} as the model reads it: {shown}" + (f" -> {answer[:SHOWN]}" if row.target_ids else "")


def _template_told(bench: Bench) -> Iterator[str]:
    """Of answers in words behind a template that nobody wrote: how to write one."""
    asked, task = bench.plan.task, bench.task
    if asked["kind"] == "classification" and "template" not in asked and task.in_words and bench.kind != "encoder":
        example = shell.word(f"{{{task.fields()[0]}}} It was")
        yield (
            "if no text would go on like that, write how one would, with words to choose from: "
            f"--template {example} --words LABEL=WORD,LABEL=WORD"
        )


def _chat_told(bench: Bench) -> Iterator[str]:
    """Of plain texts put to a model whose tokenizer knows chats."""
    asks = bench.kind == "decoder" and getattr(bench.task, "chat", None) is False
    if asks and bench.tokenizer.chat_template:
        yield (
            "the tokenizer has a chat template, and rows are asked as plain text: if the model was tuned for chats, "
            "ask them as the user's turn of one: --chat"
        )


def _lengths(found: Lengths) -> str:
    return f"{found.min} to {found.max} (middle {found.median}, 95 % up to {found.p95})"


def _estimated(bench: Bench, workers: int) -> Iterator[str]:
    plan, whole, costs, start = bench.plan, 0.0, dict[str, Costs](), time.monotonic()
    past = f" and up to {plan.past} beyond these" if plan.past else ""
    yield (
        f"a comparison of {len(plan.seeds)} seeds, {len(plan.rates) or plan.trials} learning rates{past} and "
        f"{plan.settings.steps} steps of {plan.settings.batch_size} rows, one run after another:"
    )
    found = []
    for one in estimates(bench):
        found.append(one)
        yield f"  {_line(one)}"
        yield from (f"    {one.arm} {remark}" for remark in one.remarks)
        whole += one.total_seconds
        costs[one.arm] = one.costs or Costs(one.arm)
    yield f"  together at most {duration(whole)}{', before seeds that are added' if plan.max_seeds else ''}"
    yield HOW
    yield from filter(None, [machine.busy()])
    yield from own_sizes(bench.plan, _stored(found))
    yield from _fitting(bench, costs, workers, time.monotonic() - start)


def _stored(found: Sequence[Estimate]) -> list[tuple[int, str]]:
    """What contexts and deltas store, with their names."""
    return [(one.parameters, one.arm) for one in found if one.costs and one.costs.group in PAIR]


def _fitting(bench: Bench, costs: Mapping[str, Costs], workers: int, spent: float) -> Iterator[str]:
    """What is done in the minutes, and the command for it."""
    minutes = bench.plan.minutes or USUAL
    try:
        found = _cut(bench, costs, minutes, workers, spent)
    except TooShort as problem:
        minutes = problem.minutes
        found = _cut(bench, costs, minutes, workers, spent)
    assert found.fit is not None
    cut = f"it is cut: {'; '.join(found.fit.left_out)}" if found.fit.left_out else "nothing has to be cut"
    yield f"to be done in {minutes:g} minutes, with {workers} worker{'s' * (workers > 1)}, {cut}"
    yield f"for that on this machine, type: {command(bench.plan, here=True)} --minutes {minutes:g}"


def _cut(bench: Bench, costs: Mapping[str, Costs], minutes: float, workers: int, spent: float) -> Plan:
    asked = replace(bench, plan=replace(bench.plan, minutes=minutes))
    return time_limit.cut(asked, costs, Time(60 * minutes - reserve(minutes) - spent, workers, spent))


def _line(one: Estimate) -> str:
    if one.problem:
        return f"{one.arm}: {one.problem}"
    step = f"{one.step_seconds * 1000:.0f} ms a step, " if one.step_seconds else ""
    return (
        f"{one.arm}: {one.parameters:,} parameters, {step}{duration(one.total_seconds)}, "
        f"{one.memory_mb:.0f} MB beside the model"
    )
