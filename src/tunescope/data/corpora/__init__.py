"""Public corpora: a file reads one, as its authors publish it, and its name is its name in NAME:FOLDER.

A reader has SOURCE, ``splits(folder)``, which is part -> its files, and ``rows(files)``; and DOMAIN where one of its
fields says which domain a row is of.
"""

from tunescope.data.corpus import Corpus, corpus

__all__ = ["Corpus", "corpus"]
