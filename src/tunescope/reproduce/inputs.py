"""What a user gives a recipe: a model, texts; checked before any work begins, one clear line for what will not do."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.data.read import read, sha256
from tunescope.data.row import value
from tunescope.data.rows_of_file import FORMATS
from tunescope.errors import UserError
from tunescope.models.load import model_name

PATHS = ("model", "data")  # settings that may be paths of this machine
SENTENCES = (
    "Once upon a time there was a little girl named Lily.",
    "The cat sat on the mat and looked at the rain.",
    "Two plus two is four.",
    "He opened the old wooden box, and inside it he found a letter from his grandfather.",
    "Why?",
    "In the spring, when the snow had melted, the river rose over its banks and took the bridge with it.",
    "A prefix is a few vectors in front of the text.",
    "They ran, and ran, and ran, until they could run no more.",
    'Tom said, "I want to play with the red ball."',
    "The train leaves at a quarter past nine from the third platform.",
    "It was not a good film, but it was a short one.",
    "Water boils at a lower temperature on a high mountain.",
    "Sara shared her bread with the small hungry bird, and the bird sang for her.",
    "Please send me the report before Friday.",
    "Nobody knew where the music came from.",
    "The dog barked at the moon all night long.",
)


def model_settings(model: str, kinds: Sequence[str], asker: str) -> dict[str, Any]:
    """{"model", "kind", "weights", "parameters"}: where it is, and what is there.

    Raises UserError where it cannot be loaded, or is of another kind than those that the recipe is about.
    """
    from tunescope.models.anatomy import kind
    from tunescope.models.fingerprint import fingerprint
    from tunescope.models.load import load_model

    found, _ = load_model(model)
    if kind(found) not in kinds:
        raise UserError(
            f"{asker} needs {_article(kinds[0])} {' or '.join(kinds)}, and --model {model} is {_article(kind(found))} "
            f"{kind(found)}. Give another."
        )
    return {
        "model": model,
        "kind": kind(found),
        "weights": fingerprint(found),
        "parameters": found.num_parameters(),
    }


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def data_settings(data: str) -> dict[str, Any]:
    """{"data", "sha256"}. Raises UserError for a file that is not there."""
    return {"data": data, "sha256": sha256(data)}


def portable(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as results hold them: names, no paths of this machine."""
    named = {key: settings[key] for key in PATHS if isinstance(settings.get(key), str)}
    found = settings | {key: model_name(path) if key == "model" else shown(path) for key, path in named.items()}
    several = {"bases": [portable(one) for one in settings["bases"]]} if "bases" in settings else {}
    return found | several


def texts(path: str, count: int) -> list[str]:
    """The first `count` texts of a file: one a line, or in the field "text" of JSONL, CSV or TSV, each also with .gz.

    Raises UserError for a file that cannot be read, and for one without a text.
    """
    plain = Path(path).with_suffix("") if path.endswith(".gz") else Path(path)
    if plain.suffix.lower() in FORMATS:
        found = [value(row, "text", index) for index, row in enumerate(read(path))]
    else:
        found = _lines(path)
    found = [text.strip() for text in found if text.strip()][:count]
    if not found:
        raise UserError(f"{path} has no text. Give one text a line, or JSONL with the field 'text'.")
    return found


def _lines(path: str) -> list[str]:
    try:
        content = Path(path).read_bytes()
        content = gzip.decompress(content) if path.endswith(".gz") else content
        return content.decode("utf-8-sig").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise UserError(f"Cannot read {path}: {reason}. Give a UTF-8 text file, one text a line.") from problem
