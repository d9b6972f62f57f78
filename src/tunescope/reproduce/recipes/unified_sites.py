"""Sequential against parallel, attention against feed-forward: the same budget at different places of a layer.

As published a length or a bottleneck is 200 or 30 at every place, and the adapters at attention have a norm in front
and start as BERT's layers do; under the tuned protocol every form has the same share of the parameters.
"""

from typing import NamedTuple

from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "Where a change of one size goes: sequential or parallel, attention or feed-forward"
SOURCE = "He et al. 2022 (arXiv:2110.04366), section 4 (XSum, BART-large; WMT16, mBART)"
TAKES = corpus_table.TAKES
KEEPS = True


class Form(NamedTuple):
    """An arm, what is published of it at 200 (XSum, WMT16) and at 30 (WMT16), and how the paper's differs."""

    arm: str
    summaries: str = ""
    large: str = ""
    small: str = ""
    own: str = ""


HEADS, AT_ATTENTION = "sites=attn.heads", ",norm=in,start=bert"
FORMS = {
    "prefix": Form("prefix", "43.40/20.46/35.51", "35.6", "35.2"),
    "sequential adapter, attention": Form("adapter:sites=attn", "42.01/19.30/34.40", "35.3", own=AT_ATTENTION),
    "sequential adapter, feed-forward": Form("adapter:sites=ffn", "43.21/19.98/35.08", "35.6"),
    "parallel adapter, attention": Form(
        f"adapter:placement=parallel,{HEADS}", "43.58/20.31/35.34", "35.6", "33.7", AT_ATTENTION
    ),
    "parallel adapter, feed-forward": Form("adapter:placement=parallel,sites=ffn", "43.93/20.66/35.63", "36.4", "33.0"),
    "multi-head parallel adapter": Form(f"adapter:placement=multi-head,{HEADS}", "", "35.8", "35.3"),
}
UNGATED = {"prefix without its gate": Form(f"adapter:placement=multi-head,{HEADS},activation=softmax", small="34.9")}
SHARES = {"3.6 %": 0.036, "1 %": 0.01}
SIZES = {"200": 200, "30": 30}


def settings(ask: Ask) -> Settings:
    sizes = SIZES if ask.protocol == "paper" else SHARES
    lines = [
        _line(f"{label}, {size}", form, value, is_small=index == 1)
        for index, (size, value) in enumerate(sizes.items())
        for label, form in (FORMS | UNGATED if index else FORMS).items()
    ]
    course, rows = published.course(ask, published.SUMMARIES), published.rows(ask)
    return corpus_table.settings(ask, lines, course, rows, corpus_table.ALL, choose=corpus_table.has_labels(ask))


def _line(label: str, form: Form, size: float, *, is_small: bool) -> Line:
    paper = published.unified(translation=form.small) if is_small else published.unified(form.summaries, form.large)
    if isinstance(size, float):
        return Line(label, form.arm, size, paper=paper)
    typed = f"length={size}" if form.arm == "prefix" else f"bottleneck={size}{form.own}"
    return Line(label, f"{form.arm}{',' if ':' in form.arm else ':'}{typed}", paper=paper)


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
