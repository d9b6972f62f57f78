"""Prefix-tuning's main table: full tuning, adapters and prefixes at two sizes, on table-to-text.

Published: GPT-2 medium on E2E, AdamW at 8e-5 (prefix) and 5e-5, 5 epochs of batches of 10, linear, no warm-up, the
prefix made by a network of width 512, beam search of 5; WebNLG in batches of 5 at 5e-5; BART-large on XSum, 30 epochs
of 48 at 5e-5, a network of 800, beam search of 6. The paper trained prefixes on the sum over a sentence's tokens; here
every method has the mean over tokens.
"""

from tunescope.data.corpora import e2e
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "Full tuning, adapters and prefixes on table-to-text"
SOURCE = "Li and Liang 2021 (arXiv:2101.00190), tables 1 and 2 (E2E and WebNLG, GPT-2 medium; XSum, BART-large)"
TAKES = corpus_table.TAKES
KEEPS = True


def _paper(tables: str = "", webnlg: str = "", xsum: str = "") -> dict[str, dict[str, str]]:
    """E2E's metrics with "/" between, WebNLG's BLEU over all categories, XSum's ROUGE-1/2/L."""
    on_e2e = dict(zip(e2e.METRICS, tables.split("/"), strict=True)) if tables else {}
    return {"e2e": on_e2e, "webnlg": {"bleu_webnlg": webnlg} if webnlg else {}, "xsum": published.rouge(xsum)}


LINES = (
    Line("full tuning", "full", paper=_paper("68.2/8.62/46.2/71.0/2.47", "46.5", "45.14/22.27/37.25")),
    Line("adapter, 3 %", "adapter", share=0.03, paper=_paper("68.9/8.71/46.1/71.3/2.47", "54.9")),
    Line("adapter, .1 %", "adapter", share=0.001, paper=_paper("66.3/8.41/45.0/69.8/2.40", "50.2")),
    Line("LoRA, 2 %", "lora", share=0.02),
    Line("prefix, 2 %", "prefix", share=0.02, paper=_paper(xsum="43.80/20.93/36.05")),
    Line("prefix, .1 %", "prefix", share=0.001, paper=_paper("69.7/8.81/46.1/71.4/2.49", "55.1", "42.92/20.03/35.05")),
)


# Their table of hyperparameters; in figure 4 ten are best on E2E, and their code has 200 for XSum.
LENGTHS = {"e2e": {"prefix, .1 %": 5}, "webnlg": {"prefix, .1 %": 5}, "xsum": {"prefix, 2 %": 100}}


def settings(ask: Ask) -> Settings:
    lines = corpus_table.with_lengths(ask, LINES, LENGTHS)
    return corpus_table.settings(ask, lines, published.course(ask, published.TABLE_TO_TEXT), published.rows(ask))


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
