"""Prefix-tuning's main table: full tuning, adapters and prefixes at two sizes, on table-to-text.

Published: GPT-2 medium on E2E, AdamW at 8e-5 (prefix) and 5e-5, 5 epochs of batches of 10, linear, no warm-up, the
prefix made by a network of width 512, beam search of 5. The paper's objective for prefixes was a sum over a sentence's
tokens; here every method has the mean over tokens.
"""

from tunescope.corpora import e2e
from tunescope.reproducing import published, study, working
from tunescope.reproducing.recipe import Ask, Settings
from tunescope.reproducing.study import Line

TITLE = "Full tuning, adapters and prefixes on table-to-text"
SOURCE = "Li and Liang 2021 (arXiv:2101.00190), table 1 (E2E, GPT-2 medium)"
TAKES = study.TAKES
KEEPS = True


def _e2e(*values: str) -> dict[str, dict[str, str]]:
    return {"e2e": dict(zip(e2e.METRICS, values, strict=True))}


LINES = (
    Line("full tuning", "full", paper=_e2e("68.2", "8.62", "46.2", "71.0", "2.47")),
    Line("adapter, 3 %", "adapter", share=0.03, paper=_e2e("68.9", "8.71", "46.1", "71.3", "2.47")),
    Line("adapter, .1 %", "adapter", share=0.001, paper=_e2e("66.3", "8.41", "45.0", "69.8", "2.40")),
    Line("LoRA, 2 %", "lora", share=0.02),
    Line("prefix, 2 %", "prefix", share=0.02),
    Line("prefix, .1 %", "prefix", share=0.001, paper=_e2e("69.7", "8.81", "46.1", "71.4", "2.49")),
)


def settings(ask: Ask) -> Settings:
    return study.settings(ask, LINES, published.course(ask, published.TABLE_TO_TEXT), published.rows(ask))


worlds, units, work, table = working.worlds, study.units, working.work, working.table
