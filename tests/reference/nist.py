"""NIST-5 by its definition (Doddington 2002, with the matching of mteval-v13a), one n-gram at a time."""

from math import exp, inf, log


def nist(outputs, references):
    """Tokenised outputs; for each a list of tokenised references."""
    everything = [words for own in references for words in own]
    score = 0.0
    for n in range(1, 6):
        gained, possible = 0.0, 0
        for words, own in zip(outputs, references, strict=True):
            grams = runs(words, n)
            possible += len(grams)
            for gram in set(grams):
                most = max(runs(one, n).count(gram) for one in own)
                if most:
                    gained += information(gram, everything) * min(grams.count(gram), most)
        score += gained / max(possible, 1)
    length = sum(map(len, outputs))
    usual = sum(sum(map(len, own)) / len(own) for own in references)
    ratio = length / usual if usual else inf
    if ratio >= 1:
        return score
    beta = log(0.5) / log(1.5) ** 2
    return score * exp(beta * log(ratio) ** 2) if ratio > 0 else 0.0


def runs(words, n):
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def information(gram, texts):
    """log2(occurrences of the gram without its last word / occurrences of the gram), in all references."""
    whole = sum(runs(words, len(gram)).count(gram) for words in texts)
    front = sum(len(words) if len(gram) == 1 else runs(words, len(gram) - 1).count(gram[:-1]) for words in texts)
    return log(front / whole, 2)
