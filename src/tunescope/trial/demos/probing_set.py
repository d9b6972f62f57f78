"""Inputs that the model writes itself behind demonstrations, to be asked under every order of them.

Lu et al. 2022 (arXiv:2104.08786, section 3.1). What it writes as labels is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.tasks.prompts import templates
from tunescope.tasks.task import Encoded, labelled
from tunescope.trial.demos import draw

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench

LONGEST = 128  # tokens of a sample, at most
TEMPERATURE = 1.0


def written(bench: Bench, orders: Sequence[tuple[int, ...]], seed: int) -> list[dict[str, str]]:
    """One row for each order under which the sample has the template's form; all have the first label, unread.

    The sample goes on from the demonstrations and what the template has before its first field, at temperature 1, and
    is as long as the longest training input, 128 tokens at most.

    Raises:
        UserError: no sample has that form.
    """
    from tunescope.methods.contexts.text import token_ids
    from tunescope.tasks.answers.decode import Sampling, sampled
    from tunescope.trial.bench import room

    task, tokenizer = labelled(bench.task), bench.tokenizer
    start = next(iter(templates.pieces(task.template)))[0]
    fronts = [token_ids(tokenizer, draw.text(bench, task, order) + start) for order in orders]
    left = room(bench, max(map(len, fronts)))
    usual = max(len(row.input_ids) for row in bench.encoded("train", room=None))
    longest = min(LONGEST, usual, *([] if left is None else [left]))
    asked = [Encoded(index, tuple(ids), (), None, (), "") for index, ids in enumerate(fronts)]
    texts = sampled(bench.model, asked, tokenizer, longest, len(asked), Sampling(TEMPERATURE, seed))
    found = [values for values in (parsed(task.template, text) for text in texts) if values is not None]
    if not found:
        raise UserError(
            f"order=entropy: none of the {len(texts)} samples of the model has the form of the template "
            f"{task.template!r}; take order=best, or orders=N with more of them."
        )
    return [{**values, task.label: task.labels[0]} for values in found]


def parsed(template: str, text: str) -> Mapping[str, str] | None:
    """The fields of the template in a text that goes on from what stands before the first; None where it does not fit.

    A field ends where the template's next words begin; the last one there, or else at the end of its line.
    """
    pieces = [(literal, name) for literal, name, _, _ in templates.pieces(template)]
    if len({name for _, name in pieces if name}) < sum(name is not None for _, name in pieces):
        raise UserError(f"order=entropy cannot read template {template!r}, which has a field twice.")
    pattern = ""
    for number, (literal, name) in enumerate(pieces):
        pattern += re.escape(literal) if number else ""
        if name is not None and name != templates.fields(template)[-1]:
            pattern += "(.+?)"
        elif name is not None:
            end = re.escape(templates.tail(template))
            pattern += rf"([^\n]+?)(?:{end}|\n|\Z)" if end else r"([^\n]+?)(?:\n|\Z)"
            break
    match = re.match(pattern, text, flags=re.DOTALL)
    values = [one.strip() for one in match.groups()] if match else []
    if not values or not all(values):
        return None
    return dict(zip(templates.fields(template), values, strict=True))
