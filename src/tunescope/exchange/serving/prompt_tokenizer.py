"""A tokenizer whose text can hold a soft prompt, and the way to write it so that the ids are those of the tuning."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from tunescope.errors import UserError
from tunescope.tasks.prompts import templates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TEXTS = ("The film was good.\nLabel:", "a", "1 + 1 =")  # of several kinds: a letter, digits, a line break
JOINTS = ("", " ")  # between the prompt and the text: some tokenizers begin a word only behind a space


@dataclass(frozen=True)
class Prompted:
    """tokens: the prompt's, in order. first: the id of the first one. front: special tokens between it and the text.

    text: what stands in front of every text, tokenised with add_special_tokens=False; None where no string gives the
    ids of the tuning, so that ids must be sent.
    """

    tokenizer: PreTrainedTokenizerBase
    tokens: tuple[str, ...]
    first: int
    front: tuple[int, ...]
    text: str | None

    @property
    def ids(self) -> tuple[int, ...]:
        """What stands in front of every text."""
        return (*range(self.first, self.first + len(self.tokens)), *self.front)


def prompted(given: PreTrainedTokenizerBase, rows: int, count: int, front: tuple[int, ...]) -> tuple[Prompted, int]:
    """A copy of a tokenizer with `count` tokens behind the model's `rows`, and how many unused ones stand before them.

    front: the special tokens between the prompt and the text.

    Raises:
        UserError: the tokenizer has such tokens already, or more tokens than the model has rows.
    """
    names = tuple(f"<ts_{index}>" for index in range(count))
    unused = rows - len(given)
    fillers = [f"<ts_unused_{index}>" for index in range(max(0, unused))]
    taken = sorted(given.get_vocab().keys() & {*names, *fillers})
    if taken:
        raise UserError(
            f"The tokenizer has a token {taken[0]!r} already, so a prompt was added to this model before. Export from "
            "the base model."
        )
    made = copy.deepcopy(given)
    made.add_tokens([*fillers, *names], special_tokens=True)
    if made.convert_tokens_to_ids(list(names)) != list(range(rows, rows + count)):
        raise UserError(
            f"The tokenizer has {len(given)} tokens and the model {rows} rows, and new tokens cannot be put behind "
            "both: this is not the model's own tokenizer. Load the one it came with."
        )
    _put_in_chat_template(made, "".join(names))
    opening = "".join(names) + "".join(made.convert_ids_to_tokens(list(front)))
    found = Prompted(made, names, rows, front, None)
    joint = next((one for one in JOINTS if _reads_as_meant(found, given, opening + one)), None)
    text = None if joint is None else opening + joint
    return replace(found, text=text), len(fillers)


def samples(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Texts to try a tokenizer on: three fixed ones, and one of tokens drawn from its vocabulary."""
    drawn = torch.randint(len(tokenizer), (12,), generator=torch.Generator().manual_seed(0)).tolist()
    return [*TEXTS, tokenizer.decode(drawn, skip_special_tokens=True).strip() or "b"]


def _reads_as_meant(found: Prompted, given: PreTrainedTokenizerBase, opening: str) -> bool:
    """Whether the prompt's string in front of a text gives the prompt's ids in front of the text's own."""
    return all(
        tuple(found.tokenizer(opening + text, add_special_tokens=False)["input_ids"])
        == found.ids + templates.ids(given, [text])[0]
        for text in samples(given)
    )


def _put_in_chat_template(tokenizer: PreTrainedTokenizerBase, tokens: str) -> None:
    """The prompt stands before all that a chat template writes, its start token too."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        tokenizer.chat_template = {name: tokens + one for name, one in template.items()}
    elif template:
        tokenizer.chat_template = tokens + template
