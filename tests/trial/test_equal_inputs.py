"""Test rows that repeat another's input are numbered, told, and count once in every interval."""

import json
from pathlib import Path
from typing import Any

import tinyrun

from tunescope.comparison.comparison import compare

OPTIONS: dict[str, Any] = {"arms": ["zero-shot", "lora:rank=1"], "steps": 4, "seeds": 3, "trials": 1, "quiet": True}


def ran(model: str, data: dict[str, str], out: Path) -> dict[str, Any]:
    found: dict[str, Any] = dict(compare(model, data, out=out, task="classification", **OPTIONS).results)
    return found


def test_a_test_file_four_times_over_has_the_same_intervals(tmp_path: Path) -> None:
    model, data = tinyrun.write(tmp_path)
    lines = list(dict.fromkeys(Path(data["test"]).read_text().splitlines(keepends=True)))
    texts = {json.loads(line)["text"] for line in lines}
    Path(data["test"]).write_text("".join(lines))
    once = ran(model, data, tmp_path / "once")
    often = str(tmp_path / "often.jsonl")
    Path(often).write_text("".join(4 * lines))
    four = ran(model, {**data, "test": often}, tmp_path / "four")

    assert len(set(four["data"]["test"]["inputs"])) == len(texts) and len(four["data"]["test"]["inputs"]) == 4 * len(
        lines
    )
    told = f"{4 * len(lines) - len(texts)} of {4 * len(lines)} test rows repeat another's input: intervals count each"
    assert any(note.startswith(told) for note in four["data"]["notes"])
    for one, other in zip(once["arms"], four["arms"], strict=True):
        assert one["score"] == other["score"]
        assert [round(side, 9) for side in one["interval"]] == [round(side, 9) for side in other["interval"]]
    for one, other in zip(once["comparisons"], four["comparisons"], strict=True):
        assert [round(side, 9) for side in one["interval"]] == [round(side, 9) for side in other["interval"]]
