"""What is said to be typed is read by a shell as it is meant: bash is asked."""

import json
from pathlib import Path

import bash
import pytest

from tunescope.comparison import status
from tunescope.data.rows_of_file import text_of
from tunescope.errors import UserError
from tunescope.system import files, lock, run_folder, shell
from tunescope.system.job_folder import JobFolder

NAMES = [
    "plain",
    "l k",
    "it's",
    "$HOME",
    "a*",
    "-dash",
    "d\u00e9j\u00e0",
    "b\udce4d.jsonl",
    "b\udce4 d's\\",
    "two\nlines",
    "a tab\tand\r\x1b[31m",
    "\u202eturned\u200d\U000e0001",
    "no\u00a0break",
]


@pytest.mark.parametrize("text", NAMES)
def test_bash_reads_what_was_meant(text: str) -> None:
    assert bash.words(shell.word(text)) == [text]
    assert "\n" not in shell.word(text) and bash.words(shell.join([text, "b", text])) == [text, "b", text]
    (path,) = bash.words(shell.path(text))
    assert not path.startswith("-") and Path(path) == Path(text)
    assert bash.words(shell.path(f"/far/{text}")) == [f"/far/{text}"]


def test_a_name_that_is_not_utf8_is_written_as_bash_has_it() -> None:
    assert shell.word("b\udce4d.jsonl") == r"$'b\344d.jsonl'"


def test_messages_about_a_folder_with_a_blank_say_what_can_be_typed(tmp_path: Path) -> None:
    run = tmp_path / "l k"
    run.mkdir()
    (run / "LOCK").write_text("not json")
    assert typed(lambda: enter(run), "type: ") == ["rm", str(run / "LOCK")]  # bash has filled in the pattern
    (run / "LOCK").write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert typed(lambda: enter(run), "type: ") == ["rm", str(run / "LOCK")]
    (run / "LOCK").unlink()
    asks = ["tunescope", "status", str(run)]
    assert typed(lambda: JobFolder(run, "one").asked(), "type: ") == asks
    run_folder.write_config(run, {"version": run_folder.VERSION})
    goes_on = ["tunescope", "resume", str(run)]
    assert typed(lambda: list(status.lines(run)), "type: ") == goes_on
    (run / "results.json").write_text(json.dumps({"version": run_folder.VERSION, "digest": "of others"}))
    assert typed(lambda: run_folder.read_results(run), "type: ") == goes_on
    (run / "results.json").unlink()
    (run / "status.json").write_text("{}")
    assert typed(lambda: files.read_json(run / "results.json"), "Type: ") == goes_on
    with pytest.raises(files.DiskError) as caught, files.disk_errors_named(run):
        raise PermissionError(13, "Permission denied")
    assert bash.words(str(caught.value).partition("type: ")[2]) == goes_on
    (run / "rows.jsonl").write_bytes(b"\x1f\x8b\xff")
    moves = ["mv", str(run / "rows.jsonl"), str(run / "rows.jsonl.gz")]
    assert typed(lambda: text_of(run / "rows.jsonl"), "say so: ") == moves


def enter(run: Path) -> None:
    with lock.locked(run):
        pass


def typed(made, behind: str) -> list[str]:  # type: ignore[no-untyped-def]
    """The words of the command in the error, as bash has them."""
    with pytest.raises(UserError) as caught:
        made()
    return bash.words(str(caught.value).partition(behind)[2])
