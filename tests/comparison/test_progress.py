"""Who sees a live table, who lines, and how often."""

import io
import multiprocessing

import pytest

from tunescope.comparison.progress import Lines, LiveTable, display


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("out", "parent", "kind", "every"),
    [
        (Terminal(), None, LiveTable, None),
        (io.StringIO(), None, Lines, 10.0),
        (Terminal(), "a process", Lines, 60.0),  # of several, whose tables would overwrite one another
    ],
)
def test_a_terminal_has_a_table_and_one_of_several_processes_a_line_a_minute(monkeypatch, out, parent, kind, every):
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: parent)
    with display(["lora"], out) as shown:
        assert type(shown) is kind and getattr(shown, "every", None) == every
    with display(["lora"], out, quiet=True) as shown:
        shown.say("nothing of this")
    assert "nothing of this" not in out.getvalue()
