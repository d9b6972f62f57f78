"""The length of a soft prompt, beside tuning the whole model."""

from tunescope.reproducing import published, study, working
from tunescope.reproducing.recipe import Ask, Settings
from tunescope.reproducing.study import Line

TITLE = "Soft prompts of many lengths on one task, beside full tuning"
SOURCE = "Lester et al. 2021 (arXiv:2104.08691), section 3.2 and figure 3a: more than one token matters, past 20 little"
TAKES = study.TAKES
KEEPS = True

LENGTHS = (1, 5, 20, 100, 150)


def settings(ask: Ask) -> Settings:
    lines = [Line(f"prompt of {length}", f"soft:length={length}") for length in (LENGTHS[:2] if ask.quick else LENGTHS)]
    lines.append(Line("full tuning", "full"))
    return study.settings(ask, lines, published.course(ask, published.PROMPT_TUNING), published.rows(ask))


worlds, units, work, table = working.worlds, study.units, working.work, working.table
