"""Public corpora: a file reads one, as its authors publish it, and its name is its name in NAME:FOLDER.

A reader has SOURCE, ``splits(folder)``, part -> its files, and ``rows(files)``; DOMAIN where some of its fields is a row's domain.
"""

from tunescope.gathering.parts import Corpus, corpus

__all__ = ["Corpus", "corpus"]
