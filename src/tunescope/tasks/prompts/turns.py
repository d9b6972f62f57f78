"""What a chat template writes around the words of a chat, and rows in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tunescope.tasks.prompts import templates


@dataclass(frozen=True)
class Turns:
    """What a chat template writes, as it stands.

    head: before the first turn, the system's with it. before: in front of the user's words. lead: from these to an
    answer. shown: the same of an answer that further turns follow. space: what an answer brings along in front. end:
    from an answer to the next turn. stop: the token that ends an answer; None, the tokenizer's own end token. trims:
    whether white space around the user's words goes. single: why demonstrations have no place; "", if they have one.
    note: how what a server begins an answer with is another, if it is. joint: from an answer to what stands
    `before` the next words; None where that is `end`. It is not where the first turn begins otherwise than later ones,
    the last ends otherwise, or the tokenizer makes tokens that are of both sides elsewhere. day: that the chat template
    wrote, where it writes one and it is kept; see `prompts.day`.
    """

    head: str
    before: str
    lead: str
    shown: str
    end: str
    space: str = ""
    stop: int | None = None
    trims: bool = False
    single: str = ""
    note: str = ""
    opening: str = ""
    joint: str | None = None
    day: str = ""

    @property
    def between(self) -> str:
        """What stands behind an answer that others follow."""
        return self.end if self.joint is None else self.joint

    def asked(self, template: str) -> str:
        """The template as the last turn, which is to be answered."""
        begun = self.space + self.opening if self.opening else ""
        return templates.escaped(self.before) + self._said(template) + templates.escaped(self.lead + begun)

    @property
    def gap(self) -> str:
        """What stands between `asked` and what is answered."""
        return templates.separator(templates.escaped(self.opening)) if self.opening else self.space

    def solved(self, template: str) -> str:
        """The template as a turn that was answered, with others behind."""
        return templates.escaped(self.before) + self._said(template) + templates.escaped(self.shown)

    def values(self, template: str, values: Mapping[str, str]) -> Mapping[str, str]:
        """The fields of a row as the chat template leaves them at the edges of what the user says."""
        if not self.trims:
            return values
        pieces = templates.pieces(template.strip())
        (front, first, _, _), (_, last, _, _) = pieces[0], pieces[-1]
        found = dict(values)
        if first is not None and not front:
            found[first] = found[first].lstrip()
        if last is not None:
            found[last] = found[last].rstrip()
        return found

    def turn(self, said: str, answer: str) -> str:
        """A turn that was answered, in these words."""
        said, answer = (said.strip(), answer.strip()) if self.trims else (said, answer)
        return self.before + said + self.shown + self.space + answer + self.between

    def _said(self, template: str) -> str:
        return template.strip() if self.trims else template
