"""CIDEr-D (Vedantam et al. 2015, equation 5 and section 6) as vectors over all n-grams of the set."""

from itertools import chain

import numpy as np


def cider(outputs, references):
    """The score of every row of tokenised texts."""
    total = np.zeros(len(outputs))
    for n in range(1, 5):
        grams = sorted(set(chain(*(runs(text, n) for text in chain(outputs, *references)))))
        documents = np.array([sum(any(g in runs(one, n) for one in own) for own in references) for g in grams])
        idf = np.log(len(references)) - np.log(np.maximum(documents, 1))
        for row, (output, own) in enumerate(zip(outputs, references, strict=True)):
            a = vector(output, n, grams) * idf
            for reference in own:
                b = vector(reference, n, grams) * idf
                norm = np.linalg.norm(a) * np.linalg.norm(b)
                alike = np.minimum(a, b) @ b / norm if norm else 0.0
                gap = len(runs(output, 2)) - len(runs(reference, 2))
                total[row] += 10 * alike * np.exp(-(gap**2) / (2 * 6.0**2)) / len(own) / 4
    return total


def runs(text, n):
    words = text.split()
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def vector(text, n, grams):
    own = runs(text, n)
    return np.array([own.count(gram) for gram in grams], dtype=float)
