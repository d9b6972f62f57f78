"""The day that a chat template writes: today's in each call of the tokenizer, or one that is kept.

A template asks `strftime_now(FORM)`, which transformers answers with the clock, and which no argument of
`apply_chat_template` can stand in for. So the kept day is a macro of that name in front of the template.
"""

from __future__ import annotations

import copy
import json
from datetime import date
from typing import TYPE_CHECKING

from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KEPT = "_tunescope_day"  # on a tokenizer: the day that its chat template writes, and the template without it
LETTERS = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ"  # of strftime, as C has it
FLAGS = ("", *"-_0^#")  # glibc's, between the sign and the letter
SPARE = ("2000-01-01", "2033-12-22")  # two days that share neither day, month, year nor weekday


def on_day(tokenizer: PreTrainedTokenizerBase, day: str) -> PreTrainedTokenizerBase:
    """A copy whose turns are of the day, as 2026-11-26; for "" the tokenizer itself.

    Raises UserError for what is no day.
    """
    if not day:
        return tokenizer
    found = day_named(day)
    template = undated(tokenizer)
    tokenizer = copy.copy(tokenizer)
    setattr(tokenizer, KEPT, (found, template))
    if isinstance(template, dict):
        tokenizer.chat_template = {name: _clock(found) + one for name, one in template.items()}
    elif template:
        tokenizer.chat_template = _clock(found) + template
    return tokenizer


def kept_day(tokenizer: PreTrainedTokenizerBase) -> date | None:
    """The day that its turns are of; None where it is that of the call."""
    found: date | None = getattr(tokenizer, KEPT, (None, ""))[0]
    return found


def undated(tokenizer: PreTrainedTokenizerBase) -> str | dict[str, str] | None:
    """Its chat template as it was before a day was kept."""
    template: str | dict[str, str] | None
    _, template = getattr(tokenizer, KEPT, (None, tokenizer.chat_template))
    return template


def day_named(day: str) -> date:
    """The day of a text such as 2026-11-26. Raises UserError for any other."""
    try:
        found = date.fromisoformat(day)
    except (TypeError, ValueError):
        found = None
    if found is None or day != found.isoformat():
        raise UserError(f'day={day!r} is no day. Type it as "2026-11-26", or leave it out for today.')
    return found


def _clock(day: date) -> str:
    """The macro. The line end behind it goes as it is read, so that what follows is at the beginning of a line."""
    said = {f"%{flag}{letter}": day.strftime(f"%{flag}{letter}") for flag in FLAGS for letter in LETTERS}
    known = [(code, text) for code, text in said.items() if code != text]  # one that this machine does not have stays
    each = "{% set said.text = said.text|replace(code, text) %}"
    written = f"{{% for code, text in {json.dumps(known)} %}}{each}{{% endfor %}}{{{{ said.text|replace('%%', '%') }}}}"
    return f"{{% macro strftime_now(format) %}}{{% set said = namespace(text=format) %}}{written}{{% endmacro %}}\n"
