"""What a user gives a recipe: a model, texts; checked before any work begins, one clear line for what will not do."""

from collections.abc import Mapping, Sequence
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.data.read import read, sha256
from tunescope.errors import UserError
from tunescope.models.load import load_model, model_name, on_paper
from tunescope.reproduce.ask import Ask
from tunescope.system.label_pairs import pairs
from tunescope.tasks.prompts import mask

PATHS = ("model", "data", "test")  # settings that may be paths of this machine
HASHES = {"data": "sha256", "test": "test_sha256"}  # what says that another path has the same file
SEVERAL = ("bases", "others")  # settings that are lists of such
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


def model_settings(
    model: str, kinds: Sequence[str], asker: str, *, paper: bool = False, in_words: bool = False
) -> dict[str, Any]:
    """{"model", "kind", "weights", "parameters"}: where it is, and what is there.

    paper: weights are neither read nor told, for an estimate. in_words: an encoder with its head, as of `load_model`.

    Raises UserError where it cannot be loaded, or is of another kind than those that the recipe is about.
    """
    from tunescope.models.anatomy import anatomy
    from tunescope.models.fingerprint import fingerprint

    found = on_paper(model) if paper else load_model(model, in_words=in_words)[0]
    kind = anatomy(found).kind
    if kind not in kinds:
        raise UserError(
            f"{asker} needs {_article(kinds[0])} {' or '.join(kinds)}, and --model {model} is {_article(kind)} "
            f"{kind}. Give another."
        )
    return {
        "model": model,
        "kind": kind,
        "weights": "" if paper else fingerprint(found),
        "parameters": found.num_parameters(),
    }


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def data_settings(data: str) -> dict[str, Any]:
    """{"data", "sha256"}. Raises UserError for a file that is not there."""
    return {"data": data, "sha256": sha256(data)}


def classification_settings(ask: Ask, data: str) -> dict[str, Any]:
    """{"task", "test", "test_sha256"}: the task and the file of test rows, if there is one.

    Label words are the labels' names where the rows have them. Raises UserError for a file that cannot be read, for
    rows without labels or without what the template names, and for words that are not LABEL=WORD.
    """
    row = read(data)[0]
    task: dict[str, Any] = {"label": "label_name" if "label_name" in row else "label"}
    if task["label"] not in row:
        raise UserError(
            f"{ask.name} --data {ask.data}: it needs rows with a field 'label', and these have {', '.join(row)}. "
            "Rename theirs, or give a corpus with labels, such as sst2:FOLDER."
        )
    fields_named(ask, ask.template or "{text}", row)
    task |= {"template": ask.template} if ask.template is not None else {}
    task |= {"words": pairs("--words", ask.words)} if ask.words else {}
    return {"task": task} | ({} if ask.test is None else {"test": ask.test, "test_sha256": sha256(ask.test)})


def fields_named(ask: Ask, template: str, row: Mapping[str, Any]) -> None:
    """Raises UserError where the template names a field that the rows lack."""
    lacking = [name for name in mask.fields(template) if name not in row]
    if lacking:
        one = "text" if "text" in row else next(iter(row))
        raise UserError(
            f"{ask.name}: the template {template!r} names {lacking[0]!r}, and the rows of {ask.data} have "
            f"{', '.join(row)}. Give one of yours: --template '{{{one}}} It was'"
        )


def free_paths(settings: dict[str, Any]) -> tuple[str, ...]:
    """The settings, as config.json names them, whose paths may be others: a hash of it all stands beside each.

    A model's is none: its tokenizer and its configuration are in no hash that a recipe keeps.
    """
    return tuple(f"settings.{path}" for path, digest in HASHES.items() if settings.get(digest))


def portable(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as results hold them: names, no paths of this machine."""
    named = {key: settings[key] for key in PATHS if isinstance(settings.get(key), str)}
    found = settings | {key: model_name(path) if key == "model" else shown(path) for key, path in named.items()}
    return found | {key: [portable(one) for one in settings[key]] for key in SEVERAL if key in settings}
