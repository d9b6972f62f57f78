"""What identifies the model and the data of a result, with names and hashes and no paths."""

from __future__ import annotations

from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.data.splits import key_of
from tunescope.models.load import model_name
from tunescope.trial.bench import Bench


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
    """A part cut out of the training file has that file's name and hash."""
    parts = bench.splits.parts()
    source = {part: part if part in bench.plan.data else "train" for part in parts}
    described: dict[str, Any] = {
        part: {
            "path": shown(bench.plan.data[source[part]]),
            "sha256": bench.sha256[source[part]],
            "rows": len(rows),
        }
        for part, rows in parts.items()
    }
    notes = list(bench.splits.notes)
    numbers = inputs_of(bench)
    if "test" in described and len(set(numbers)) < len(numbers):
        described["test"]["inputs"] = numbers
        notes.append(
            f"{len(numbers) - len(set(numbers)):,} of {len(numbers):,} test rows repeat another's input: intervals "
            "count each input once."
        )
    return described | {"notes": notes}


def inputs_of(bench: Bench) -> list[int]:
    """Of each test row the number of its input: rows that are equal in the task's fields have one."""
    known: dict[str, int] = {}
    fields = bench.task.fields()
    return [known.setdefault(key_of(row, fields), len(known)) for row in bench.splits.parts().get("test", ())]
