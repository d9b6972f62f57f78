"""Types say something: `: Any` stays rare, files stay short enough to be read whole."""

from pathlib import Path

from scripts.imports import PACKAGE

MOST_ANY = 100  # lines with ": Any"; what stands there is JSON, other libraries' objects, or a module's attribute
MOST_LINES = 300


def untyped(package: Path) -> list[str]:
    """FILE:LINE of each line that says `: Any`."""
    return [
        f"{path.relative_to(package)}:{number}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if ": Any" in line
    ]


def long(package: Path) -> list[str]:
    """Files of more lines than can be read at one go."""
    lines = {path.relative_to(package): path.read_text("utf-8").count("\n") for path in package.rglob("*.py")}
    return [f"{path}: {count} lines" for path, count in sorted(lines.items()) if count > MOST_LINES]


def test_any_is_rare() -> None:
    found = untyped(PACKAGE)
    assert len(found) <= MOST_ANY, f"{len(found)} lines say ': Any': give a type where there is one\n" + "\n".join(
        found
    )


def test_no_file_is_too_long() -> None:
    assert not long(PACKAGE), "two ideas in one file? Part them."


def test_both_are_counted_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "row.py").write_text(
        "def of(row: Any, n: int) -> Any:\n    kept: Any = row\n    return kept\n"
    )
    (tmp_path / "whole.py").write_text("\n" * MOST_LINES)
    assert untyped(tmp_path) == ["room/row.py:1", "room/row.py:2"] and long(tmp_path) == []
    (tmp_path / "whole.py").write_text("\n" * (MOST_LINES + 1))
    assert long(tmp_path) == ["whole.py: 301 lines"]
