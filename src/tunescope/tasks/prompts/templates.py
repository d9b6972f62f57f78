"""Templates filled from rows and turned into token ids, cut to the room there is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING

from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = tuple[int, ...]


def fields(template: str) -> tuple[str, ...]:
    """The distinct {fields} of a template in order.

    Raises:
        UserError: braces that do not pair, a field without a name, a conversion or a format, or no field.
    """
    parsed = [piece[1:] for piece in pieces(template) if piece[1] is not None]
    if not parsed or any(not name or spec or conversion for name, spec, conversion in parsed):
        raise UserError(
            f"Template {template!r} must name at least one field of the rows, each as {{field}} and no more, such as "
            '--template "{text} It was"'
        )
    return tuple(dict.fromkeys(str(name) for name, _, _ in parsed))


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with each {field} replaced by its value; values are never read as templates."""
    return "".join(literal + (values[name] if name is not None else "") for literal, name, _, _ in pieces(template))


def tail(template: str) -> str:
    """What follows the last field; all of it where there is none."""
    parsed = pieces(template)
    last = max((i for i, piece in enumerate(parsed) if piece[1] is not None), default=-1)
    return "".join(literal for literal, _, _, _ in parsed[last + 1 :])


def pieces(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """Literal text, then field, format and conversion. Raises UserError for braces that do not pair."""
    try:
        return list(Formatter().parse(template))
    except ValueError as error:
        raise UserError(f"Template {template!r}: {error}. Write {{field}}, and {{{{ for a brace.") from error


def escaped(text: str) -> str:
    """Text as a part of a template, its braces no fields."""
    return text.replace("{", "{{").replace("}", "}}")


def separator(template: str) -> str:
    """What stands between a filled template and its answer: a space, unless white space ends the template."""
    end = tail(template)
    return "" if end and end[-1].isspace() else " "


def ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, target: bool = False) -> list[Ids]:
    """Token ids without special tokens, one tuple a text; ``target`` for the decoder side of a translator."""
    if not texts:
        return []
    key = "text_target" if target else "text"
    encoded = tokenizer(**{key: list(texts)}, add_special_tokens=False, verbose=False)
    return [tuple(one) for one in encoded["input_ids"]]


def edges(tokenizer: PreTrainedTokenizerBase, *, target: bool = False) -> tuple[Ids, Ids]:
    """The special tokens the tokenizer puts in front of a text and behind it."""
    plain = ids(tokenizer, ["a"], target=target)[0]
    whole = tuple(tokenizer(**{"text_target" if target else "text": "a"})["input_ids"])
    for start in range(len(whole) - len(plain) + 1):
        if plain and whole[start : start + len(plain)] == plain:
            return whole[:start], whole[start + len(plain) :]
    return (), ()


def lead(tokenizer: PreTrainedTokenizerBase, model_kind: str) -> Ids:
    """What an encoder-decoder learned to write before any answer: BART's <s>, the language of NLLB's target."""
    return edges(tokenizer, target=True)[0] if model_kind == "encoder-decoder" else ()


def continuations(
    tokenizer: PreTrainedTokenizerBase, template: str, answers: Sequence[str], space: str | None = None
) -> list[Ids]:
    """Token ids of each answer as it goes on from the filled template, behind the space; None: its `separator`."""
    return ids_behind(tokenizer, tail(template), separator(template) if space is None else space, answers)


def ids_behind(tokenizer: PreTrainedTokenizerBase, end: str, space: str, answers: Sequence[str]) -> list[Ids]:
    """Token ids of each answer behind `end` and `space`.

    It is encoded behind that end (or a letter, where there is a space and no end), and the ids of the end are taken
    off. Where the tokenizer merges the two, the answer is encoded alone.
    """
    found: dict[int, Ids] = {}
    for head in [one for one in (end, "a" if space else "") if one]:
        left = [index for index in range(len(answers)) if index not in found]
        start = ids(tokenizer, [head])[0]
        whole = ids(tokenizer, [head + space + answers[index] for index in left])
        pairs = zip(left, whole, strict=True)
        found |= {i: w[len(start) :] for i, w in pairs if len(w) > len(start) and w[: len(start)] == start}
    left = [index for index in range(len(answers)) if index not in found]
    found |= zip(left, ids(tokenizer, [space + answers[index] for index in left]), strict=True)
    return [found[index] for index in range(len(answers))]


def ids_after(tokenizer: PreTrainedTokenizerBase, before: str | None, texts: Sequence[str]) -> list[Ids]:
    """Token ids of texts behind another: at the start of a line, where that ends one, and else by themselves."""
    end = kept_end(tokenizer, before or "")
    return ids_behind(tokenizer, end, "", texts) if end else ids(tokenizer, texts)


def kept_end(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """The text's `line_end`, where it has ids of its own in front of a word; Pegasus's reads it as the word's space."""
    from tunescope.methods.contexts.text import WORD, words_before

    end = line_end(text)
    return end if end and words_before(tokenizer, WORD + end) != words_before(tokenizer, WORD) else ""


def line_end(text: str) -> str:
    """The sign that ends the text's last line; "" where it ends in words or in a space."""
    return text[-1:] if text[-1:].isspace() and text[-1:] != " " else ""


def cut_field(template: str, preferred: str, values: Mapping[str, str]) -> str:
    """The field to shorten: the preferred one if the template uses it, or else this row's longest."""
    used = fields(template)
    return preferred if preferred in used else max(used, key=lambda name: len(values[name]))


def fitted(
    tokenizer: PreTrainedTokenizerBase,
    template: str,
    values: Mapping[str, str],
    field: str,
    room: int,
    behind: str | None = None,
) -> tuple[Ids, int] | None:
    """(token ids of the filled template, characters cut off the end of ``field``) with at most ``room`` ids.

    None where even an empty field leaves too many.
    """

    def filled(length: int) -> Ids:
        return ids_after(tokenizer, behind, [fill(template, {**values, field: values[field][:length]})])[0]

    if len(best := filled(0)) > room:
        return None
    fits, over = 0, len(values[field]) + 1  # invariant: `fits` characters fit; `over` do not, as far as known
    while over - fits > 1:
        middle = (fits + over) // 2
        if len(tried := filled(middle)) <= room:
            fits, best = middle, tried
        else:
            over = middle
    return best, len(values[field]) - fits


@dataclass(frozen=True)
class Layout:
    """How rows become a model's input ids. ``cut`` names the field to shorten where the room is too small.

    behind: as in `Task.encode`.
    head: of a chat, which begins with these words and has the special tokens that are written in it alone; else None.
    """

    template: str
    cut: str
    model_kind: str
    behind: str | None = None
    head: str | None = None

    def encode(
        self,
        tokenizer: PreTrainedTokenizerBase,
        rows: Sequence[Mapping[str, str]],
        rooms: Sequence[int | None],
        places: Sequence[str],
        earlier: Sequence[Sequence[str]] = (),
    ) -> list[tuple[Ids, int]]:
        """(ids with the special tokens around them, characters cut) of every row.

        Args:
            rooms: ids allowed for each row's input, None for no limit.
            earlier: the turns of a chat in front of each row, which go first where the room is too small, oldest first.

        Raises:
            UserError: a row's template does not fit even without its input, or comes to no token at all.
        """
        front, back = edges(tokenizer)
        front = front if self.behind is None and self.head is None else ()
        back = () if self.model_kind == "decoder" else back  # an end there would cut the answer off
        edge, found = len(front) + len(back), []
        head = self.head if self.head and self.behind is None else ""
        turns = earlier or [()] * len(rows)
        texts = [head + "".join(own) + fill(self.template, row) for own, row in zip(turns, rows, strict=True)]
        whole = ids_after(tokenizer, self.behind, texts)
        for row, own, tokens, room, place in zip(rows, turns, whole, rooms, places, strict=True):
            fit: tuple[Ids, int] | None = (tokens, 0)
            if room is not None and len(tokens) + edge > room:
                fit = self._shortened(tokenizer, row, head, own, room - edge)
            if fit is None:
                raise UserError(
                    f"{place}: there is room for {max(room or 0, 0)} tokens before the answer, and the "
                    "template alone is longer. Shorten the template, the context or the row."
                )
            if not front + fit[0] + back:
                raise UserError(
                    f"{place}: the filled template is empty, and the model needs a token to go on from. "
                    "Fill in the row, or end the template in some text."
                )
            found.append((front + fit[0] + back, fit[1]))
        return found

    def _shortened(
        self,
        tokenizer: PreTrainedTokenizerBase,
        row: Mapping[str, str],
        head: str,
        turns: Sequence[str],
        room: int,
    ) -> tuple[Ids, int] | None:
        """As `fitted`, without the oldest turns; where the last one alone is too long it is cut too."""

        def left(gone: int) -> Ids:
            return ids_after(tokenizer, self.behind, [head + "".join(turns[gone:]) + fill(self.template, row)])[0]

        first = bisect_left(range(len(turns)), True, lo=1, key=lambda gone: len(left(gone)) <= room) if turns else 0
        if turns and len(tokens := left(first)) <= room:
            return tokens, sum(map(len, turns[:first]))
        template = escaped(head) + self.template
        fit = fitted(tokenizer, template, row, cut_field(template, self.cut, row), room, self.behind)
        return fit and (fit[0], fit[1] + sum(map(len, turns)))
