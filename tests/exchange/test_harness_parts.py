"""Which part of a task of lm-evaluation-harness is trained on where it has none for that, and what is said of it."""

from types import SimpleNamespace

import pytest

from tunescope.exchange.harness import rows


@pytest.mark.parametrize(
    ("there", "trained", "said"),
    [
        ({"validation": [1, 2], "test": [3]}, [1, 2], "so its validation part is trained on"),  # test is scored on
        ({"test": [3]}, [3], "so rows that the harness scores on are trained on"),
        ({"validation": [1]}, [1], "so rows that the harness scores on are trained on"),
        ({"training": [0], "test": [3]}, [0], ""),
    ],
)
def test_rows_that_are_scored_on_are_told_to_be_trained_on_where_they_are(there, trained, said):
    fields = {f"{part}_docs": lambda docs=docs: docs for part, docs in there.items()}
    parts = ("training", "validation", "test")
    fields |= {f"has_{part}_docs": lambda part=part: part in there for part in parts}
    task = SimpleNamespace(OUTPUT_TYPE="multiple_choice", **fields)
    found = rows._parts(task, "t")
    assert found["train"] == trained
    notes = rows._notes(task, "t", found)
    assert [note.partition("training part, ")[2] for note in notes[1:]] == [said] * bool(said)
