"""The length of a prefix: too short says too little, and past some length more is no better."""

from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "Prefixes of many lengths on one task"
SOURCE = "Li and Liang 2021 (arXiv:2101.00190), section 7.1: best near 10 on table-to-text, near 200 on summaries"
TAKES = corpus_table.TAKES
KEEPS = True

LENGTHS = (1, 2, 5, 10, 20, 40, 80, 150, 300)


def settings(ask: Ask) -> Settings:
    lengths = (1, 5) if ask.quick else LENGTHS
    lines = [Line(f"prefix of {length}", f"prefix:length={length}") for length in lengths]
    return corpus_table.settings(ask, lines, published.course(ask, published.TABLE_TO_TEXT), published.rows(ask))


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
