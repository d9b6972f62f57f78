"""Public corpora: a file reads one, as its authors publish it, and its name is its name in NAME:FOLDER.

A reader has SOURCE, ``splits(folder)`` (part -> its files) and ``rows(files)``; PART says what else it may have.
"""

from tunescope.gathering.spec import Corpus, corpus

__all__ = ["Corpus", "corpus"]
