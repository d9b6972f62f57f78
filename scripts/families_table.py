"""The table of results/families.json as a page has it: a mark where a method works, a letter where it says why not."""

from collections.abc import Mapping
from typing import Any

REASONS = {
    "computes attention by itself": "The family computes attention by itself, where nothing of ours reaches it.",
    "is not what it is in the row": "Text in front is not what it is in the row: layers that keep no keys of the past, "
    "masks made of the values, or positions that hang on the length. A prefix is what stands there by definition.",
    "takes pixel_values": "The input is no text, and has no place for embeddings.",
    "takes input_": "The input is no text, or embeddings have no way in.",
    "has no such parameter": "It has no biases.",
    "Infix stands between": "An infix stands between the input and the output of a decoder.",
    "encoder layers of family": "Layers of the encoder compute attention by themselves.",
    "in several layers": "One attention module runs in several layers, and a context has no place of its own there.",
    "does not know": "Attention is given something that tunescope does not know.",
    "asks for site": "There is no place of that name, or there are two; its linear maps can be had by their paths.",
    "no linear map": "It has no linear map: its products are convolutions.",
    "its own code fails": "Its own code takes no embeddings without the ids that they are of.",
    "hides": "Its layers have a window, and do not tell attention the positions.",
    "no gradient reaches": "Its only biases are where the model chooses keys to look at, and no gradient goes there.",
}
LETTERS = {phrase: "abcdefghijklmnopqrstuvwxyz"[number] for number, phrase in enumerate(REASONS)}
WORKS = "●"


def table(found: Mapping[str, Any]) -> str:
    """Families down, methods across, and what the letters mean."""
    methods = list(found["methods"])
    lines = [f"| family | {' | '.join(methods)} |", "|---" + "|:-:" * len(methods) + "|"]
    for family, outcomes in sorted(found["families"].items()):
        lines.append(f"| {family} | {' | '.join(_mark(outcomes[method]) for method in methods)} |")
    used = {_mark(reason) for one in found["families"].values() for reason in one.values() if reason}
    told = [f"{LETTERS[phrase]}: {meaning}" for phrase, meaning in REASONS.items() if LETTERS[phrase] in used]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return "\n".join([f"{counts(found)} ({versions}).", "", *lines, "", *(f"- {one}" for one in told)])


def counts(found: Mapping[str, Any]) -> str:
    """On how many families each method works."""
    works = {method: sum(not one[method] for one in found["families"].values()) for method in found["methods"]}
    return f"Of {len(found['families'])} families: " + ", ".join(f"{method} on {n}" for method, n in works.items())


def _mark(reason: str) -> str:
    return WORKS if not reason else next(LETTERS[phrase] for phrase in REASONS if phrase in reason)
