"""The texts of a file, or of all files in a folder."""

from pathlib import Path

from tunescope.data.texts import texts
from tunescope.errors import UserError
from tunescope.system import files, run_folder

KINDS = {".txt", ".jsonl", ".csv", ".tsv"}
MOST = 10**9  # texts of a file, and characters of one: a text may be a book


def read(data: str) -> list[str]:
    """The texts of a file, or of every file in a folder and those in it, in the order of their names."""
    files = _files(data)
    return [text for file in files for text in texts(str(file), MOST, MOST)]


def digest(data: str) -> str:
    """16 hex digits over the names and contents of the files."""
    root = Path(data) if Path(data).is_dir() else Path(data).parent
    return run_folder.identity({path.relative_to(root).as_posix(): files.sha256(path) for path in _files(data)})


def _files(data: str) -> list[Path]:
    path = Path(data)
    if not path.exists():
        raise UserError(f"there is no file or folder {data}; give a text file, or a folder of them.")
    found = sorted(one for one in path.rglob("*") if one.is_file() and _kind(one) in KINDS) if path.is_dir() else [path]
    if not found:
        raise UserError(f"{data} has no text file: {', '.join(sorted(KINDS))}, each also with .gz.")
    return found


def _kind(path: Path) -> str:
    """What a file's name says that it is, whether gzipped or not."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix
