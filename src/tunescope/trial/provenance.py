"""What identifies the model and the data of a result, with names and hashes and no paths."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.data.splits import as_read, key_of, shared
from tunescope.models.load import model_name
from tunescope.system import shell
from tunescope.tasks.facts import SHOWN, Facts, facts
from tunescope.trial.bench import Bench
from tunescope.trial.plan import Fit


def model_of(bench: Bench) -> dict[str, Any]:
    """What identifies the model and its size."""
    return {
        "name": model_name(bench.plan.model),
        "fingerprint": bench.fingerprint,
        "type": bench.model.config.model_type,
        "kind": bench.kind,
        "layers": int(getattr(bench.model.config, "num_hidden_layers", 1)),
        "parameters": sum(value.numel() for value in bench.model.parameters()),
    }


def data_of(bench: Bench) -> dict[str, Any]:
    """A part cut out of the training file has that file's name and hash, and in `cut` one of its own rows."""
    parts = bench.splits.parts()
    source = {part: part if part in bench.plan.data else "train" for part in parts}
    described: dict[str, Any] = {
        part: {
            "path": shown(bench.plan.data[source[part]]),
            "sha256": bench.sha256[source[part]],
            "rows": len(rows),
            **({} if source[part] == part else {"cut": _rows_hash(rows)}),
        }
        for part, rows in parts.items()
    }
    numbers = inputs_of(bench, "test")
    if len(set(numbers)) < len(numbers):
        described["test"]["inputs"] = numbers
    distinct = len(set(inputs_of(bench, "dev")))
    if distinct < described["dev"]["rows"]:
        described["dev"]["inputs"] = distinct
    return described | {"notes": list(notes_of(bench))}


def _rows_hash(rows: Sequence[Mapping[str, Any]]) -> str:
    """sha256 (hex) over the rows in their order, each a line of canonical JSON."""
    found = hashlib.sha256()
    for row in rows:
        found.update(json.dumps(dict(row), sort_keys=True, default=str).encode() + b"\n")
    return found.hexdigest()


def facts_of(bench: Bench) -> Facts:
    """What is found in the rows, looked for once; with --k-shot in those of the first seed."""
    if bench.facts is None:
        bench.facts = facts(bench.task, bench.splits.parts(), bench.tokenizer, bench.model.config)
    return bench.facts


def notes_of(bench: Bench) -> tuple[str, ...]:
    """What a person should know of the rows before trusting a number: how they were cut, and what is odd in them."""
    numbers = inputs_of(bench, "test")
    repeated = len(numbers) - len(set(numbers))
    told = f"{repeated:,} of {len(numbers):,} test rows repeat another's input: intervals count each input once."
    asked = (*_fit_told(bench.plan.fit), *bench.splits.notes, *of_template(bench.plan.task.get("template")))
    found = (*asked, *facts_of(bench).notes, *_of_draws(bench), *([told] if repeated else []))
    return tuple(dict.fromkeys(found))


def of_template(template: str | None) -> list[str]:
    """Of one that was typed with a backslash and an n: in its usual quotes no shell makes a new line of them."""
    if template is None or "\\n" not in template:
        return []
    meant = shell.word(template.replace("\\n", "\n"))
    return [
        "The template has a backslash and an n, and the model reads these two signs; if a new line is meant, type: "
        f"--template {meant}"
    ]


def _of_draws(bench: Bench) -> list[str]:
    """Of --k-shot: test rows that another seed than the first is trained on."""
    test, fields = bench.splits.test, bench.task.question()
    every = [row for draw in bench.draws.values() for row in draw.train]
    lines = shared(every, test, fields, loosely=True)
    if len(lines) <= len(shared(bench.splits.train, test, fields, loosely=True)):
        return []
    shown = ", ".join(map(str, lines[:SHOWN])) + (", ..." if len(lines) > SHOWN else "")
    return [
        f"{len(lines):,} of {len(test):,} test rows have an input that some seed is trained on, case, blanks and forms "
        f"of characters aside (lines {shown})."
    ]


def _fit_told(fit: Fit | None) -> list[str]:
    """What was cut so that a comparison is done in time."""
    if fit is None:
        return []
    cut = "; ".join(fit.left_out) or "nothing had to be cut"
    return [f"To be done in {fit.minutes:g} minutes: {cut}."]


def inputs_of(bench: Bench, part: str) -> list[int]:
    """Of each row of a part the number of its input: rows that ask the same have one."""
    known: dict[str, int] = {}
    fields = bench.task.question()
    keys = (key_of(as_read(row, fields), fields) for row in bench.splits.parts().get(part, ()))
    return [known.setdefault(key, len(known)) for key in keys]
