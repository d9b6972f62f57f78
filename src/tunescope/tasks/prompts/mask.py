"""{mask} in a template: the place of the answer, as each kind of model knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.tasks.prompts import templates
from tunescope.tasks.prompts.templates import Ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MASK = "mask"  # no field of the rows can have this name in a classification's template
SENTINEL = "<extra_id_0>"  # what T5 was pretrained to fill
EXAMPLE = "'{text} It was {mask}.'"


@dataclass(frozen=True)
class Place:
    """A template as one model reads it.

    template: without {mask}: an encoder's mask token or T5's sentinel is written there, a decoder's answer follows.
    front: what stands before the answer, still with its fields. mark: what is written at {mask}, "" where nothing is.
    lead: what the decoder's side of an encoder-decoder begins with before the answer, given and never scored.
    """

    template: str
    front: str
    mark: str = ""
    lead: Ids = ()


def fields(template: str) -> tuple[str, ...]:
    """The fields of the rows in order.

    Raises:
        UserError: as `prompts.fields`; no field but {mask}; or {mask} more than once.
    """
    if (count := sum(name == MASK for _, name, _, _ in templates.pieces(template))) > 1:
        raise UserError(f"Template {template!r} holds {{mask}} {count} times; it is the one place of the answer.")
    found = tuple(name for name in templates.fields(template) if name != MASK)
    if not found:
        raise UserError(
            f"Template {template!r} must name a field of the rows beside {{mask}}, the place of the answer."
        )
    return found


def halves(template: str) -> tuple[str, str] | None:
    """What stands before {mask} and what behind it, as templates; None where it has none."""
    front, behind, seen = "", "", False
    for literal, name, _, _ in templates.pieces(template):
        piece = templates.escaped(literal) + ("" if name in (None, MASK) else f"{{{name}}}")
        front, behind = (front, behind + piece) if seen else (front + piece, behind)
        seen = seen or name == MASK
    return (front, behind) if seen else None


def place(template: str, tokenizer: PreTrainedTokenizerBase, model_kind: str) -> Place:
    """Where a model of that kind answers.

    Raises:
        UserError: an encoder's template without {mask}, a tokenizer without a mask token or T5's sentinel, a decoder's
            template that goes on behind {mask}.
    """
    parts = halves(template)
    if model_kind == "encoder":
        return _masked(template, parts, tokenizer)
    if parts is None:
        return Place(template, template, lead=templates.lead(tokenizer, model_kind))
    if model_kind == "decoder":
        plain = _ending(template, *parts)
        return Place(plain, plain)
    sentinel = tokenizer.convert_tokens_to_ids(SENTINEL)
    if sentinel is None or sentinel == tokenizer.unk_token_id:
        raise UserError(
            f"Template {template!r} has {{mask}}, which an encoder-decoder fills where its tokenizer has {SENTINEL}, "
            "as T5's has, and this one has not. Take {mask} out: the answer is then what the decoder begins with."
        )
    return Place(parts[0] + SENTINEL + parts[1], parts[0], SENTINEL, (int(sentinel),))


def _masked(template: str, parts: tuple[str, str] | None, tokenizer: PreTrainedTokenizerBase) -> Place:
    if tokenizer.mask_token is None:
        raise UserError(
            "by='words' needs a mask token on an encoder, and this tokenizer has none. Type: by='head', or take a "
            "masked language model with its own tokenizer."
        )
    if parts is None:
        raise UserError(
            f"Template {template!r} has no {{mask}}, and an encoder answers with a word at a mask. Put it where the "
            f"word belongs, as in {EXAMPLE}, or type: by='head'"
        )
    mark = str(tokenizer.mask_token)
    return Place(parts[0] + templates.escaped(mark) + parts[1], parts[0], mark)


def _ending(template: str, front: str, behind: str) -> str:
    """The template without its {mask}, and without the one space before it, which the answer brings."""
    if behind or not front[-1:].isspace():
        raise UserError(
            f"Template {template!r}: a decoder answers at the end, so {{mask}} can only end the template, behind white "
            "space, as in '{text} It was {mask}'. Without {mask} the answer follows the template too."
        )
    return front[:-1] if front[-1] == " " and front[:-1] and not front[:-1][-1].isspace() else front


def slots(
    found: Place,
    cut_first: str,
    rows: Sequence[Mapping[str, str]],
    encoded: Sequence[tuple[Ids, int]],
    tokenizer: PreTrainedTokenizerBase,
) -> list[int]:
    """Where in each row's ids its mask stands; a mask token in the row's own text is not taken for it.

    Args:
        encoded: ids and characters cut of every row, as `prompts.Layout.encode` gives them for the same rows.

    Raises:
        UserError: the tokenizer writes its mask token as ordinary text.
    """
    where = []
    for values, (ids, cut) in zip(rows, encoded, strict=True):
        field = templates.cut_field(found.template, cut_first, values)
        kept = {**values, field: values[field][: len(values[field]) - cut]}
        before = templates.fill(found.front, kept).count(found.mark)
        masks = [index for index, token in enumerate(ids) if token == tokenizer.mask_token_id]
        if len(masks) <= before:
            raise UserError(
                f"This tokenizer reads its mask token {found.mark!r} as ordinary text, so the mask cannot be placed. "
                "Load it with split_special_tokens=False."
            )
        where.append(masks[before])
    return where


def answers(tokenizer: PreTrainedTokenizerBase, found: Place, words: Sequence[str]) -> list[Ids]:
    """Token ids of each word at an encoder's mask: behind a space, or as the text begins, as the template has it."""
    end = templates.tail(found.front)
    space = " " if end.endswith(" ") else ""
    return templates.ids_behind(tokenizer, end[:-1] if space else end, space, words)
