"""What stands around a prompt that is looked for: nothing, or in a chat the words around what its system says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.trial.chats import check_no_chat, said

if TYPE_CHECKING:
    from tunescope.search.search import Search
    from tunescope.trial.bench import Bench

PLACE = "sQ7xsxQ7s"  # no chat template changes it


@dataclass(frozen=True)
class Frame:
    """trims: white space at the prompt's edges goes, so that no prompt has any."""

    before: str = ""
    behind: str = ""
    trims: bool = False

    def around(self, text: str) -> str:
        return self.before + text + self.behind

    def takes(self, text: str) -> bool:
        """Whether the text stands in it as it is."""
        return not self.trims or text == text.strip()


BARE = Frame()


def frame(bench: Bench) -> Frame:
    """Of prompts in front of the bench's rows. Raises UserError as `tunescope.trial.chats.said`."""
    before, found, behind = said(bench, PLACE).partition(PLACE)
    if not found or PLACE in behind:
        raise UserError("This chat template does not write what the system says as it is. Leave --chat out.")
    edged = f" {PLACE} "
    return Frame(before, behind, trims=said(bench, edged) != before + edged + behind)


def check_frame(search: Search, bench: Bench, name: str) -> None:
    """UserError where what the search looks for has no place in the chat that rows are asked in."""
    if search.in_front:
        frame(bench)
    elif not search.names_labels:
        check_no_chat(bench, f"{name} looks for what stands around a row's words,")
