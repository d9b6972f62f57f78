"""Label words as token sequences to continue a prompt with, and whether they can be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING
from unicodedata import normalize

from tunescope.errors import UserError
from tunescope.system.label_pairs import typed
from tunescope.tasks.prompts.mask import Place, answers, place
from tunescope.tasks.prompts.templates import Ids, continuations, ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def stripped(words: Mapping[str, str]) -> dict[str, str]:
    """Labels and words without white space around them. Raises UserError for what is no text, and for a label twice."""
    if not isinstance(words, Mapping) or not all(isinstance(one, str) for pair in words.items() for one in pair):
        raise UserError(f"Classification(words={words!r}): give each label a text, as words={{'neg': 'bad'}}.")
    found = {label.strip(): word.strip() for label, word in words.items()}
    if len(found) < len(words):
        raise UserError(f"Classification(words={words!r}) has a label twice, white space around it aside.")
    return found


def word_tokens(
    tokenizer: PreTrainedTokenizerBase,
    template: str,
    words: Mapping[str, str],
    model_kind: str,
    space: str | None = None,
) -> dict[str, Ids]:
    """Label -> token ids of its word.

    Decoder: the word as it continues the end of the template, behind a space unless there is white space
    already. Where the tokenizer merges the two, the word is encoded alone. Encoder-decoder: the word as the
    beginning of the decoder's text, or what follows T5's sentinel there. Encoder: the word at the mask, one token.
    space: what stands in front of a decoder's word, where it is not to be seen by the template.

    Raises:
        UserError: a word without tokens or with an unknown one, two labels with the same tokens, or one that begins
            another; at a mask, a word of several tokens; or a template that has no place for an answer.
    """
    texts, at = list(words.values()), place(template, tokenizer, model_kind)
    tokens = dict(zip(words, encoded(tokenizer, at, texts, model_kind, space), strict=True))
    if model_kind != "encoder":
        _check_known(tokens, words, tokenizer)
    _check(tokens, words)
    if model_kind == "encoder":
        _check_single(tokens, words, tokenizer)
    return tokens


def encoded(
    tokenizer: PreTrainedTokenizerBase, at: Place, texts: Sequence[str], model_kind: str, space: str | None = None
) -> list[Ids]:
    """Token ids of each text as the answer at that place; nothing is checked."""
    if model_kind == "encoder":
        return answers(tokenizer, at, texts)
    if model_kind == "encoder-decoder":
        return ids(tokenizer, texts, target=True)
    return continuations(tokenizer, at.template, texts, space)


def shared_first_tokens(tokens: Mapping[str, Ids]) -> list[tuple[str, ...]]:
    """Groups of labels whose words begin with the same token: fine when scored in full, as here."""
    groups: dict[int, list[str]] = {}
    for label, sequence in tokens.items():
        groups.setdefault(sequence[0], []).append(label)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def notes(tokens: Mapping[str, Ids]) -> list[str]:
    """What a reader of the results should know about these label words."""
    found = []
    if len({len(sequence) for sequence in tokens.values()}) > 1:
        counts = ", ".join(f"{label} {len(sequence)}" for label, sequence in tokens.items())
        found.append(
            "A label's score is the sum of the log-probabilities of all tokens of its word, so longer words "
            f"start at a disadvantage. Tokens: {counts}."
        )
    for group in shared_first_tokens(tokens):
        found.append(f"The words of {', '.join(group)} begin with the same token; they differ later.")
    return found


def _check_known(tokens: Mapping[str, Ids], words: Mapping[str, str], tokenizer: PreTrainedTokenizerBase) -> None:
    """UserError for a word that holds the unknown token, which is as probable for any other word; some have none."""
    for label, sequence in tokens.items():
        if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in sequence:
            parts = ", ".join(tokenizer.convert_ids_to_tokens(list(sequence)))
            raise UserError(
                f"Label '{label}' has the word {words[label]!r}, which this tokenizer reads as {parts}: it does not "
                f"know it. Choose another: {typed([label], more=True)}"
            )


def _check_single(tokens: Mapping[str, Ids], words: Mapping[str, str], tokenizer: PreTrainedTokenizerBase) -> None:
    for label, sequence in tokens.items():
        if len(sequence) > 1 or sequence[0] == tokenizer.unk_token_id:
            parts = ", ".join(tokenizer.convert_ids_to_tokens(list(sequence)))
            raise UserError(
                f"Label '{label}' has the word {words[label]!r}, which this tokenizer reads as {parts}. At a mask a "
                f"word must be one known token. Choose another: {typed([label], more=True)}"
            )


def _check(tokens: Mapping[str, Ids], words: Mapping[str, str]) -> None:
    for label, sequence in tokens.items():
        if not sequence or not words[label].strip():
            raise UserError(
                f"Label '{label}' has the word {words[label]!r}, which comes to no token. "
                f"Choose another: {typed(list(tokens)[:3])}"
            )
    for one, other in combinations(tokens, 2):
        short, long = sorted((one, other), key=lambda label: len(tokens[label]))
        if tokens[long][: len(tokens[short])] != tokens[short]:
            continue
        if len(tokens[long]) == len(tokens[short]):
            problem = "are the same tokens, so they cannot be told apart"
        else:
            problem = f"collide: all tokens of '{short}' begin '{long}', so '{short}' would always score higher"
        mend = f"Choose others: {typed([one, other], more=len(tokens) > 2)}"
        if meant(one) == meant(other):
            mend = f"If the two are one label, write it one way in the rows. {mend}"
        raise UserError(
            f"The words of labels '{one}' ({words[one]!r}) and '{other}' ({words[other]!r}) {problem}. {mend}"
        )


def meant(label: str) -> str:
    """The label without case, blanks and forms of characters, and a number in one way of writing it."""
    read = "".join(normalize("NFKC", label).casefold().split())
    try:
        return str(float(read))
    except ValueError:
        return read
