"""Words in front of the text, as chat messages and as plain text: what every server takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import difference
from tunescope.exchange.outgoing import Outgoing
from tunescope.exchange.serving import checkpoint, embeddings
from tunescope.exchange.serving.chat_template import messages
from tunescope.exchange.serving.prompt_tokenizer import JOINTS, samples
from tunescope.exchange.serving.refusals import check_tokenizer, check_tokens
from tunescope.methods.contexts.text import Text
from tunescope.system import files
from tunescope.tasks.prompts import templates
from tunescope.tasks.prompts.turns import Turns

ABOUT = "a hard prompt or demonstrations as chat messages and as plain text"
SERVES = (
    "every server: messages.json on a chat route, prefix.txt on a completions route, also where only an API is open"
)
MESSAGES, PREFIX = "messages.json", "prefix.txt"


def write(given: Outgoing, folder: Path) -> list[str]:
    """`messages.json`, to which the user's own message is appended, and `prefix.txt`, to stand in front of a text.

    Raises:
        UserError: no decoder, no tokenizer, or an artifact that is not words.
    """
    check_tokens(given, "messages", changes=False)
    check_tokenizer(given, "messages")
    if not all(isinstance(artifact.spec, Text) for artifact in given.artifacts):
        raise UserError("--to messages holds words, and trained embeddings are none: use --to soft_token or embeds.")
    task = given.about.get("task") or {}
    made = messages(_text(given), task, given.tokenizer)
    joint = _joint(given)
    files.write(folder / MESSAGES, json.dumps(made, indent=1, ensure_ascii=False).encode())
    files.write(folder / PREFIX, (_text(given) + (joint or "")).encode())
    checkpoint.describe(given, "messages", folder, query=_query(task), prompt={"ids": list(_context(given))})
    turns = len(made) // 2
    said = f"{turns} demonstration{'s' * (turns != 1)} as turns" if turns else "one system message"
    marks = "the model also reads its template's marks, which it did not in tuning"
    if task.get("chat"):
        marks = task["chat"].get("note") or "as in tuning"
    notes = [f"messages.json: {said}; in a chat {marks}"]
    if task.get("template"):
        notes.append(f"what the user then says is the filled template: {task['template']!r}")
    return notes + _chat_notes(given, made) + _prefix_notes(given, joint)


def check(given: Outgoing, folder: Path) -> float | None:
    """The base on `prefix.txt` and a text, tokenised as one string, against the attached model.

    None: the string gives other ids than the context and the text apart, of which `write` has told.
    """
    if _joint(given) is None:
        return None
    prefix, n_context, room = (folder / PREFIX).read_text("utf-8"), len(_context(given)), embeddings.room(given.model)
    if room is not None and n_context >= room:
        raise UserError(f"A prompt of {n_context} tokens leaves no room for a text in this model of {room} positions.")
    worst = 0.0
    for text in samples(given.tokenizer):
        whole = torch.tensor([_read(given, prefix + text)[:room]], device=given.model.device)
        with resting(given.model), torch.no_grad():
            got = given.model(input_ids=whole).logits[:, n_context:]
            with attach(given.model, *given.artifacts):
                expected = given.model(input_ids=whole[:, n_context:]).logits
        worst = max(worst, difference(got, expected))
    return worst


def _query(task: Mapping[str, Any]) -> str | None:
    """What stands behind the prefix on a completions route: the template, in a chat as its turn."""
    return Turns(**task["chat"]).asked(task["template"]) if task.get("chat") else task.get("template")


def _text(given: Outgoing) -> str:
    return "".join(artifact.spec.text for artifact in given.artifacts if isinstance(artifact.spec, Text))


def _context(given: Outgoing) -> tuple[int, ...]:
    return tuple(int(one) for artifact in given.artifacts for one in artifact.tensors["ids"])


def _read(given: Outgoing, text: str) -> list[int]:
    """As a completions route tokenises a prompt: with the start token, without an end token."""
    back = len(templates.edges(given.tokenizer)[1])
    ids: list[int] = given.tokenizer(text)["input_ids"]
    return ids[: len(ids) - back]


def _misread(given: Outgoing, joint: str) -> list[str]:
    """The sample texts that have other ids behind the prefix than behind the attached context."""
    context, prefix = _context(given), _text(given) + joint
    return [
        text
        for text in samples(given.tokenizer)
        if tuple(_read(given, prefix + text)) != context + templates.ids(given.tokenizer, [text])[0]
    ]


def _joint(given: Outgoing) -> str | None:
    """What stands between the prefix and a text so that the ids are those of the tuning; None where nothing does."""
    return next((joint for joint in JOINTS if not _misread(given, joint)), None)


def _prefix_notes(given: Outgoing, joint: str | None) -> list[str]:
    if joint is None:
        texts = samples(given.tokenizer)
        wrong = [text for text in texts if text in _misread(given, "")]
        return [
            f"prefix.txt and a text, as one string, have other tokens than apart, as they were tuned ({len(wrong)} of "
            f"{len(texts)} samples, such as {wrong[0]!r}): nearly as tuned. For the same, send ids: those under "
            f"prompt in {checkpoint.MANIFEST}, then those of the text alone"
        ]
    return ["prefix.txt ends in a space, which this tokenizer needs before a text"] if joint else []


def _chat_notes(given: Outgoing, made: list[dict[str, str]]) -> list[str]:
    """Whether the tokenizer's own chat template takes these messages."""
    from jinja2 import TemplateError

    if not given.tokenizer.chat_template:
        return ["the tokenizer has no chat template: use prefix.txt, unless the server brings one"]
    try:
        given.tokenizer.apply_chat_template([*made, {"role": "user", "content": "a"}], tokenize=False)
    except (TemplateError, TypeError, ValueError) as problem:
        return [f"the chat template refuses these messages ({problem}): put their words into the user's message"]
    return []
