"""Where virtual tokens act: as embeddings, as keys and values of every layer in front, or behind the input.

Behind the input they are an infix: what other papers call a suffix, in every layer, and seen from the input's last
token on, which gives the first of the output. Embeddings begin as tokens of the vocabulary, prefixes and infixes as
noise; under the tuned protocol prefixes begin as tokens too, so that a place is not held against a better start.
"""

from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "Embeddings alone, prefixes and infixes"
SOURCE = "Li and Liang 2021 (arXiv:2101.00190), tables 4 and 5 (E2E, GPT-2 medium)"
TAKES = corpus_table.TAKES
KEEPS = True

PAPER = {("soft", 1): "48.1", ("soft", 10): "62.2", ("soft", 20): "61.9"}
PAPER |= {("infix", 1): "67.9", ("infix", 10): "67.2", ("infix", 20): "66.7", ("prefix", 5): "69.7"}
LABELS = {"soft": "embeddings alone", "prefix": "prefix", "infix": "infix"}


def settings(ask: Ask) -> Settings:
    lengths = (1,) if ask.quick else (1, 10, 20)
    lines = [
        Line(
            f"{label}, {length}", f"{method}:length={length}", paper={"e2e": {"bleu": PAPER.get((method, length), "")}}
        )
        for method, label in LABELS.items()
        for length in sorted({*lengths, 5} if method == "prefix" else lengths)  # five: that of their main table
    ]
    if ask.protocol == "tuned" and not ask.quick:
        lines += [Line(f"prefix of tokens, {length}", f"prefix:length={length},init_from=tokens") for length in lengths]
    return corpus_table.settings(
        ask, lines, published.course(ask, published.TABLE_TO_TEXT), published.rows(ask), kinds=("decoder",)
    )


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
