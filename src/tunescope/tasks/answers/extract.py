"""How an answer is read out of what a model wrote: a rule that can be tested, and None where it finds nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from tunescope.data.metrics.exact_match import normal
from tunescope.errors import UserError

MINUS, MONEY, BLANK = "[-\u2212]", "[$\u00a3\u00a5\u20a0-\u20cf]", r"[^\S\n]"
NUMBER = re.compile(
    rf"(?:(?<![\w.)\]]){MINUS})?(?:(?:\d{{1,3}}(?:,\d{{2,3}})*,\d{{3}}(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    rf"(?:e(?:\+|{MINUS})?\d{{1,3}}(?!\w))?",
    flags=re.IGNORECASE,
)
APART = re.compile(  # a minus that is a number's, though not in front of its digits
    rf"(\A[ \t:]*|[=(\[{{]{BLANK}*){MINUS}{BLANK}?{MONEY}?(?=\.?\d)"
    rf"|(^{BLANK}*|(?<![\w.)\]%\s])|(?<![\d)\]%\s]){BLANK}+){MINUS}{MONEY}(?=\.?\d)",
    flags=re.MULTILINE,
)
BLANK_LINE = re.compile(r"\n\s*\n")  # white space alone may be in it
FULL_WIDTH = {0xFEE0 + code: code for code in range(0x21, 0x7F)}


@dataclass(frozen=True)
class Extraction:
    """What is read is what stands behind the last `marker`, in the text before its first blank line.

    blank_ends: whether it ends there; a model that has learned an end of its own may write blank lines.
    marker: in any case, and where it begins or ends in a letter no part of a longer word.

    read: "line", from there to the end of the line, without white space around it and one full stop at its end;
        "number", the first number there (see `numbers`); or choices, as "yes,no": the first of them there as a whole
        word, in any case. Where the marker does not occur, a line finds nothing, and the others take the last number or
        choice of the text (as Kojima et al. 2022, arXiv:2205.11916, appendix A.5, take numbers).
    """

    read: str = "line"
    marker: str = "The answer is"
    blank_ends: bool = True

    def __post_init__(self) -> None:
        named = self.read in ("line", "number")
        if not named and (len(self.choices) < 2 or len(set(self.choices)) < len(self.choices) or "" in self.choices):
            raise UserError(f"--read {self.read!r}: it is line, number, or different choices, as in --read yes,no")
        if not self.marker.strip():
            raise UserError("The words in front of an answer are empty; type --lead 'The answer is'")

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(one.strip() for one in self.read.split(","))

    def answer(self, text: str) -> str | None:
        """The answer in a text that may hold the marker, or None."""
        text = self._first(text)
        found = [*re.finditer(_whole(self.marker), text, flags=re.IGNORECASE)]  # in lower case it may be longer
        return self._read(text, text[found[-1].end() :] if found else None)

    def answer_behind(self, text: str) -> str | None:
        """The answer in what was written behind a prompt that ends in the marker; a later marker in it is not one."""
        text = self._first(text)
        return self._read(text, text)

    def _first(self, text: str) -> str:
        return BLANK_LINE.split(text, maxsplit=1)[0] if self.blank_ends else text

    def several(self, targets: Sequence[str]) -> tuple[str, ...]:
        """A note on right answers of more than one number, such as 3/4, of which the first alone is compared."""
        found = [one for one in targets if self.read == "number" and len(numbers(one)) > 1]
        told = (
            f"{len(found):,} of {len(targets):,} right answers hold more than one number, as {found[0][:40]!r} does, "
            "and the first alone is compared: write each as one number, or type --read line."
            if found
            else ""
        )
        return (told,) if told else ()

    def _read(self, text: str, behind: str | None) -> str | None:
        if self.read == "line":
            return _line(behind)
        where = text if behind is None else behind
        is_number = self.read == "number"
        found = numbers(where) if is_number else re.findall(_words(self.choices), where, flags=re.IGNORECASE)
        if not found:
            return None
        first = found[-1] if behind is None else found[0]
        if is_number:
            return first
        return next(one for one in self.choices if re.fullmatch(re.escape(one), first, flags=re.IGNORECASE))


def numbers(text: str) -> list[str]:
    """The numbers in a text, without the commas of thousands and in the shortest form: 18.00 is 18, 6.0e3 is 6000.

    One is below zero where a minus stands in front of it and no other number or letter before that. Between the two may
    be the sign of a currency (-$4), where a blank in front of the minus is behind no number; and a blank (- 4), where
    the text, a bracket or what follows "=" begins with the minus: 7 - 4 are two numbers, and "- 4" in a list is 4.
    Full-width signs and the digits of any script are read as ASCII's. GSM8K's own rule (Cobbe et al. 2021,
    arXiv:2110.14168: "#### ", then minus, digits, dots and commas) sees no currency, blank or exponent.
    """
    plain = re.sub(r"\d", lambda digit: str(int(digit[0])), text.translate(FULL_WIDTH))
    found = NUMBER.findall(APART.sub(r"\1\2-", plain))
    return [_shortest(one.replace(",", "").replace("\u2212", "-")) for one in found]


def vote(answers: Sequence[str | None], lowercase: bool = False) -> tuple[str | None, float]:
    """The answer given most often, and its share of all (self-consistency: Wang et al. 2022, arXiv:2203.11171).

    Answers that exact match takes for one are one, as it was written first. None does not vote, but counts in the
    share. Of equals the one that was given first wins. (None, 0.0) where there is no answer.
    """
    given = [answer for answer in answers if answer is not None]
    if not given:
        return None, 0.0
    forms = [normal(answer, lowercase) for answer in given]
    winner = max(forms, key=forms.count)  # the first of equals
    return given[forms.index(winner)], forms.count(winner) / len(answers)


def _shortest(number: str) -> str:
    """007 -> 7, 18.00 -> 18, .50 -> 0.5, -0 -> 0, 1e3 -> 1000."""
    number = format(Decimal(number), "f")
    sign, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
    whole, _, part = digits.partition(".")
    whole, part = whole.lstrip("0") or "0", part.rstrip("0")
    return (sign if whole != "0" or part else "") + whole + ("." + part if part else "")


def _line(behind: str | None) -> str | None:
    line = (behind or "").lstrip(" :").split("\n")[0].strip()
    return line.removesuffix(".").rstrip() or None


def _whole(marker: str) -> str:
    """The marker where it is no part of a word."""
    front, back = (r"(?<!\w)" if marker[0].isalnum() else ""), (r"(?!\w)" if marker[-1].isalnum() else "")
    return f"{front}{re.escape(marker)}{back}"


def _words(choices: Sequence[str]) -> str:
    longest_first = sorted(choices, key=len, reverse=True)
    return rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)"
