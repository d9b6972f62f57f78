"""What `check` notes of the rows `compare` notes too: while it runs, in the terminal, on the page and in the card."""

import html
import json
from dataclasses import replace
from pathlib import Path

import pytest
import tinyrun

from tunescope.comparison import comparison, preview
from tunescope.comparison.comparison import compare
from tunescope.comparison.own_sizes import own_sizes
from tunescope.report import card
from tunescope.report.verdict import reader, words
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import planned
from tunescope.trial.provenance import notes_of

ODD = {
    "train": [*tinyrun.rows(20, 0), {"text": "a plot was dull", "label": "pos"}, {"text": "the film", "label": "Pos"}],
    "dev": [{"text": "a plot was dull", "label": "pos"}, {"text": "bright", "label": "pos"}] * 2,
    "test": [{"text": "a plot was dull", "label": "neg"}] * 19 + [{"text": "bright " * 80, "label": "pos"}],
}
TOLD = (
    "1 of 22 train rows have an input that stands with another label too (lines 21).",
    "2 of 4 dev rows repeat an earlier row exactly (lines 3, 4).",
    "2 of 4 dev rows are also in train, exactly (lines 1, 3).",
    "18 of 20 test rows repeat an earlier row exactly (lines 2, 3, 4, 5, 6, ...).",
    "19 of 20 test rows have an input that is also in train, case, blanks and forms of characters aside "
    "(lines 1, 2, 3, 4, 5, ...).",
    "19 of 20 test rows have an input that is also in dev, case, blanks and forms of characters aside "
    "(lines 1, 2, 3, 4, 5, ...).",
    "1 of 20 test rows are longer than the model's 64 positions; what is too much of them will be cut (lines 20).",
    "19 of 20 test rows have an input that stands with another label too (lines 1, 2, 3, 4, 5, ...).",
    "The labels 'Pos', 'pos' differ by case, blanks, forms of characters or how a number is written only, and count as "
    "different ones.",
    "No dev row has 2 of the 3 labels: Pos, neg.",
    "No test row has 1 of the 3 labels: Pos.",
    "18 of 20 test rows repeat another's input: intervals count each input once.",
)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    model, data = tinyrun.write(folder)
    tokenizer = tinyrun.tokenizer()
    tokenizer.add_tokens(["Pos"])
    tokenizer.save_pretrained(model)
    for part, rows in ODD.items():
        Path(data[part]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return model, data


@pytest.fixture(scope="module")
def bench(material):
    model, data = material
    return open_bench(Plan(model=model, data=data, task={"kind": "classification"}, arms=("zero-shot",), trials=1))


def test_whatever_is_odd_is_told_by_check(bench):
    assert set(TOLD) <= set(notes_of(bench))
    assert {f"note: {note}" for note in TOLD} <= set(preview.lines(bench))


def test_whatever_is_odd_is_told_by_compare(bench, material, tmp_path, capsys):
    given = {"model": bench.model, "tokenizer": bench.tokenizer, "data": material[1], "out": tmp_path / "run"}
    found = compare(**given, arms=["zero-shot"], steps=2, seeds=1, forgetting="none")
    shown, page = capsys.readouterr().err, (found.folder / "report.html").read_text()
    manifest = {"artifacts": [{"method": "lora", "fields": {}}], "base": {"model_type": "gpt2", "fingerprint": "0"}}
    written = card.card(card.CardFacts("me/it", manifest, 4, found.results))
    for note in TOLD:
        assert f"note: {note}\n" in shown and f"note: {note}" in str(found).splitlines()
        assert html.escape(note).replace("&#x27;", "&#39;") in page
        assert f"- {card.escaped(note)}\n" in written


def test_scores_are_told_of_inputs_and_not_of_rows(bench, material, tmp_path):
    given = {"model": bench.model, "tokenizer": bench.tokenizer, "data": material[1], "out": tmp_path / "run"}
    found = compare(**given, arms=["zero-shot"], steps=2, seeds=1, forgetting="none", quiet=True).results
    assert (reader.scored_rows(found), reader.dev_rows(found)) == (2, 2)
    low, high = found["arms"][0]["interval"]
    assert low >= 0 and high <= 1 and high - low > 0.7  # as if of 20 rows it were .14


def test_labels_have_their_share_of_what_is_cut_out_of_one_file(material, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [row | {"label": "good"} if n < 3 else row for n, row in enumerate(distinct(60))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench = open_bench(Plan(model=material[0], data={"train": str(path)}, task={"kind": "classification"}))
    assert [sum(row["label"] == "good" for row in part) for part in bench.splits.parts().values()] == [1, 1, 1]
    assert not any(note.startswith("No ") for note in notes_of(bench))


def distinct(count):
    """So many rows of different texts."""
    found = {row["text"]: row for row in tinyrun.rows(10 * count, 3)}
    return list(found.values())[:count]


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([(100, "soft"), (200, "lora")], ""),
        ([(100, "soft"), (201, "lora"), (150, "prefix")], "100 (soft) to 201 (lora) stored parameters"),
        ([(0, "demos"), (None, "x"), (7, "soft")], ""),
        (
            [(12_000, "soft"), (6_000_000, "lora"), (0, "zero-shot")],
            "12,000 (soft) to 6,000,000 (lora) stored parameters",
        ),
    ],
)
def test_sizes_that_are_not_nearly_one_are_told(sizes: list[tuple[int | None, str]], told: str) -> None:
    assert words.unequal(sizes) == told


def test_arms_without_a_budget_are_told_to_be_unequal_by_check_compare_and_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = tinyrun.write(tmp_path)
    asked = planned(model, data, {"kind": "classification"}, {"device": "cpu", "steps": 2, "trials": 1})
    asked = replace(asked, arms=("zero-shot", "soft:length=2", "lora:rank=4"), seeds=(0,), max_seeds=None)
    told = [line for line in preview.lines(open_bench(asked)) if line.startswith("without --budget")]
    size = "32 (soft:length=2) to 512 (lora:rank=4) stored parameters"
    assert told == [
        f"without --budget arms have sizes of their own, {size}; --budget 32 makes them one, but for sizes that are "
        "typed"
    ]
    found = comparison.ask(asked, tmp_path / "run").results["verdict"]["sentences"][-1]
    shown = capsys.readouterr().err
    assert shown.count(f"note: {told[0]}\n") == 1 and shown.index(told[0]) < shown.index("seed 0")
    assert f"these data, arms of unequal size, {size} (--budget makes them one), 2 steps" in found
    assert own_sizes(replace(asked, budgets=(64,)), [(32, "soft"), (512, "lora")]) == []
    budgeted = replace(asked, arms=("soft", "lora"), budgets=(256,))
    comparison.ask(budgeted, tmp_path / "equal")
    assert "without --budget" not in capsys.readouterr().err
    assert not any(line.startswith("without --budget") for line in preview.lines(open_bench(budgeted)))
