"""Development rows that are scored while a run trains: counted by hand, drawn by label, all of them at the end."""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from tunescope.comparison import run as run_arm
from tunescope.comparison.comparison import compare
from tunescope.errors import UserError
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.trial import dev_rows
from tunescope.trial.command import command
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check


def test_scores_take_a_fifth_of_a_run_s_passes_or_of_fewer_rows() -> None:
    # 60 steps of 8 rows are 960 passes; a fifth of all is a quarter of that, 240
    assert dev_rows.early_count(80, 60, 8, 20, 0.2, True) == 80  # 3 scores of 80 are 240
    assert dev_rows.early_count(81, 60, 8, 20, 0.2, True) == 53  # 3 * 53 + 81 = 240
    assert dev_rows.early_count(100, 60, 8, 20, 0.2, True) == 46  # 3 * 46 + 100 = 238
    assert dev_rows.early_count(100, 60, 8, 20, 0.5, True) == 100
    assert dev_rows.early_count(100, 60, 8, 20, 1.0, True) == 100
    assert dev_rows.early_count(100, 60, 8, 6, 0.2, True) == 32  # 14 rows would tell nothing
    assert dev_rows.early_count(20, 60, 8, 1, 0.2, True) == 20
    assert dev_rows.early_count(60, 60, 8, 20, 0.2, False) == 32  # an answer that is written counts twice


@pytest.mark.parametrize("rows", [81, 100, 400, 5000])
@pytest.mark.parametrize("every", [5, 20, 60])
def test_no_share_is_larger_than_asked_while_there_are_rows_enough(rows: int, every: int) -> None:
    count = dev_rows.early_count(rows, 300, 16, every, 0.2, True)
    scored = -(-300 // every) * count + rows * (count < rows)
    assert scored <= 0.2 / 0.8 * 2 * 300 * 16 or count == dev_rows.LEAST


def test_each_label_has_its_share_to_within_a_row_whatever_the_order() -> None:
    labels = ["a"] * 50 + ["b"] * 30 + ["c"] * 17
    keys = [f"row {number}" for number in range(97)]
    some = dev_rows.drawn(keys, labels, 40)
    assert len(set(some)) == 40
    counts = Counter(labels[row] for row in some)
    assert all(abs(counts[label] - 40 * held / 97) < 1 for label, held in Counter(labels).items())
    back = dev_rows.drawn(keys[::-1], labels[::-1], 40)
    assert {96 - row for row in back} == set(some)


def test_a_share_that_is_none_is_refused_and_the_command_says_what_is_not_usual() -> None:
    with pytest.raises(UserError, match=r"^--dev-share 0 is a share of a run's passes above 0, at most 1, such as 0.2"):
        check(Plan(dev_share=0.0))
    asked = Plan(model="m", data={"train": "d.jsonl"})
    told = [command(Plan(model="m", data=asked.data, dev_share=share)) for share in (0.2, 0.5, 1.0, None)]
    assert "--dev-share" not in told[0] and "--dev-share 0.5" in told[1]
    assert "--dev-share 1.0" in told[2] and "--dev-share 1 " in told[3] + " "


def ran(folder: Path, name: str, share: float, **options: Any) -> Any:
    if not (folder / "model").exists():
        tinyrun.write(folder)
    rows = (folder / "dev.jsonl").read_text().splitlines()
    (folder / "many.jsonl").write_text("".join(f"{row}\n" for row in rows * 3))  # 3 of each: their score is that of one
    fields: dict[str, Any] = {
        "arms": ("lora:rank=2", "prefix:length=2"), "task": Classification(words={"neg": "bad", "pos": "good"}),
        "learning_rates": (3e-2,), "seeds": 2, "out": folder / name, "quiet": True,
        "steps": 6, "batch_size": 4, "eval_every": 2, "dev_share": share, "forgetting": "none",
    }  # fmt: skip
    data = {"train": folder / "train.jsonl", "dev": folder / "many.jsonl", "test": folder / "test.jsonl"}
    return compare(str(folder / "model"), data, **(fields | options))


def test_a_run_is_scored_on_some_rows_while_it_trains_and_on_all_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    score = run_arm.score.score

    def counted(bench: Any, todo: Any, tuned: Any, part: str, only: Any = None) -> Any:
        asked.append(len(only) if only is not None else len(bench.splits.parts()[part]) if part == "dev" else 0)
        return score(bench, todo, tuned, part, only)

    monkeypatch.setattr(run_arm.score, "score", counted)
    found = ran(tmp_path, "some", 0.2)
    n = len((tmp_path / "many.jsonl").read_text().splitlines())
    assert n > dev_rows.LEAST and Counter(asked) == {32: 4 * 3, n: 4, 0: 4}
    assert found.results["protocol"]["early_rows"] == 32
    told = f"while a run trains 32 of the {n} development rows are scored, at its end all"
    assert found.results["protocol"]["early_stopping"].endswith(told)
    for path in found.folder.glob("arms/*/result.json"):
        kept = json.loads(path.read_text())
        assert kept["dev"] * n == pytest.approx(round(kept["dev"] * n), abs=1e-9)

    whole = ran(tmp_path, "whole", 1.0)
    assert whole.results["protocol"]["early_rows"] is None
    assert not {one.name for one in (whole.folder / "arms").iterdir()} & {
        one.name for one in (found.folder / "arms").iterdir()
    }
    together = ran(tmp_path, "together", 0.2, together=4)
    for ours, theirs in combinations([found, together], 2):
        for one, other in zip(ours.results["arms"], theirs.results["arms"], strict=True):
            assert [run["dev"] for run in one["runs"]] == [run["dev"] for run in other["runs"]]


def test_where_all_rows_take_no_more_than_the_share_nothing_changes(tmp_path: Path) -> None:
    fifth = ran(tmp_path, "fifth", 0.9)
    whole = ran(tmp_path, "whole", 1.0)
    assert {one.name for one in (fifth.folder / "arms").iterdir()} == {
        one.name for one in (whole.folder / "arms").iterdir()
    }
    assert [arm["runs"][0]["curve"] for arm in fifth.results["arms"]] == [
        arm["runs"][0]["curve"] for arm in whole.results["arms"]
    ]


def test_rows_with_one_input_and_several_references_are_one_question(tmp_path: Path) -> None:
    """36 inputs with two references each are 72 rows, of which 32 inputs are scored while it trains."""
    tinyrun.write(tmp_path)
    rows = [{"text": f"w{number} w{number + 1}", "out": f"w{other}"} for number in range(36) for other in (1, 2)]
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compare(
        str(tmp_path / "model"), {part: tmp_path / f"{part}.jsonl" for part in ("train", "dev", "test")},
        arms=("zero-shot", "lora:rank=2"),
        task=Generation(template="{text}", target="out", max_new_tokens=2, metric="exact_match"),
        learning_rates=(3e-2,), seeds=1, out=tmp_path / "run", quiet=True, steps=4, batch_size=4, eval_every=2,
        dev_share=0.2, forgetting="none",
    )  # fmt: skip
    assert [arm["status"] for arm in found.results["arms"]] == ["done", "done"]
    told = "while a run trains 32 of the 36 development rows are scored, at its end all"
    assert found.results["protocol"]["early_stopping"].endswith(told)


def test_the_rows_left_over_go_to_the_labels_that_lack_most_of_their_share() -> None:
    labels = ["a"] * 50 + ["b"] * 30 + ["c"] * 20
    some = dev_rows.drawn([f"row {number}" for number in range(100)], labels, 44)
    assert Counter(labels[row] for row in some) == {"a": 22, "b": 13, "c": 9}  # of 22, 13.2 and 8.8
