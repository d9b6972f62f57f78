"""Tokenizers that put the language of a text beside it, as those of mBART, M2M100 and NLLB do."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tunescope.tasks.task import Task

CODE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]+")  # ro_RO of mBART, ron_Latn of NLLB
SIDES = {"source_language": "src_lang", "target_language": "tgt_lang"}


def with_languages(tokenizer: PreTrainedTokenizerBase, task: Task) -> Any:
    """The tokenizer, or a copy that knows the task's languages.

    Raises:
        UserError: the tokenizer has no languages, or not those of the task.
    """
    asked = _named_sides(task)
    if not has_languages(tokenizer):
        if asked:
            raise UserError(
                f"{' and '.join(map(_option, asked))}: the tokenizer of this model ({type(tokenizer).__name__}) marks "
                "no language, so this would have no effect. Leave it out, or give a model such as mBART."
            )
        return tokenizer
    tokenizer = copy.deepcopy(tokenizer)
    for side, given in asked.items():
        setattr(tokenizer, SIDES[side], _code(tokenizer, given, side))
    return tokenizer


def notes(tokenizer: PreTrainedTokenizerBase, task: Task) -> list[str]:
    """Which languages it marks, and how to say others; nothing of a tokenizer that marks none."""
    if not has_languages(tokenizer):
        return []
    source, target = (getattr(tokenizer, name, None) for name in SIDES.values())
    said = f"Languages, as the tokenizer marks them: {source} to {target or source}."
    missing = [_option(side) for side in SIDES if side not in _named_sides(task)]
    return [said + (f" If that is wrong, give {' and '.join(missing)}." if missing else "")]


def has_languages(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether what stands around a text depends on its language."""
    return hasattr(tokenizer, "set_tgt_lang_special_tokens")


def _code(tokenizer: PreTrainedTokenizerBase, given: str, side: str) -> str:
    """ "ro_RO" as it is, and for "ro" the one code of that language."""
    codes = _codes(tokenizer)
    found = [given] if given in codes else [code for code in codes if code.partition("_")[0] == given]
    if len(found) != 1:
        raise UserError(f"{_option(side)} {given}: the tokenizer of this model knows {', '.join(codes)}.")
    return found[0]


def _codes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    known: Mapping[str, str] | None = getattr(tokenizer, "lang_code_to_token", None)  # of M2M100: ro for __ro__
    return sorted(known or filter(CODE.fullmatch, tokenizer.get_vocab()))


def _named_sides(task: Task) -> dict[str, str]:
    return {side: getattr(task, side) for side in SIDES if getattr(task, side, "")}


def _option(side: str) -> str:
    return f"--{side.replace('_', '-')}"
