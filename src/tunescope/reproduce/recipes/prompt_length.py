"""The length of a soft prompt, beside tuning the whole model."""

from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "Soft prompts of many lengths on one task, beside full tuning"
SOURCE = "Lester et al. 2021 (arXiv:2104.08691), section 3.2 and figure 3a: more than one token matters, past 20 little"
TAKES = corpus_table.TAKES
KEEPS = True

LENGTHS = (1, 5, 20, 100, 150)


def settings(ask: Ask) -> Settings:
    lines = [Line(f"prompt of {length}", f"soft:length={length}") for length in (LENGTHS[:2] if ask.quick else LENGTHS)]
    lines.append(Line("full tuning", "full"))
    return corpus_table.settings(ask, lines, published.course(ask, published.PROMPT_TUNING), published.rows(ask))


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
