"""Text that has nothing to do with a task: prose that comes with the package, or a file.

`general_text.txt` is 30 kB of English out of nine books of Project Gutenberg, as NLTK selected them (their headers
taken off; all in the public domain): Austen's Emma, Persuasion, and Sense and Sensibility; Carroll's Alice's
Adventures in Wonderland; Chesterton's The Ball and the Cross, The Wisdom of Father Brown, and The Man Who Was Thursday;
Edgeworth's The Parent's Assistant; Melville's Moby-Dick. About 3,400 characters of each, from the middle of the book,
whole paragraphs with their line breaks taken out. Models have mostly seen these books.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tunescope.data.texts import texts
from tunescope.errors import UserError

BUNDLED = "general_text.txt"
LONGEST = 200_000  # characters


def general_text(name: str = "") -> str:
    """The first LONGEST characters of a file's texts, a line each; of "", the prose that comes with the package.

    Raises:
        UserError: the file cannot be read, or has no text.
    """
    path = name or str(Path(__file__).with_name(BUNDLED))
    try:
        return "\n".join(texts(path, LONGEST, sys.maxsize))[:LONGEST]
    except UserError as problem:
        raise UserError(f"--forgetting: {problem}") from None
