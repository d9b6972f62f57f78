"""Sequential against parallel, attention against feed-forward: the same budget at different places of a layer."""

from tunescope.reproducing import published, study, working
from tunescope.reproducing.recipe import Ask, Settings
from tunescope.reproducing.study import Line

TITLE = "Where a change of one size goes: sequential or parallel, attention or feed-forward"
SOURCE = (
    "He et al. 2022 (arXiv:2110.04366), table 3 (XSum, ROUGE-2, BART-large; WMT16, BLEU, mBART; feed-forward at 2.4 %)"
)
TAKES = study.TAKES
KEEPS = True

FORMS = {
    "prefix": ("prefix", "20.46", "35.6"),
    "sequential adapter, attention": ("adapter:sites=attn", "19.30", "35.3"),
    "sequential adapter, feed-forward": ("adapter:sites=ffn", "19.98", "35.6"),
    "parallel adapter, attention": ("adapter:placement=parallel,sites=attn.heads", "20.31", "35.6"),
    "parallel adapter, feed-forward": ("adapter:placement=parallel,sites=ffn", "20.66", "36.4"),
    "multi-head parallel adapter": ("adapter:placement=multi-head,sites=attn.heads", "", "35.8"),
}
SHARES = {"3.6 %": 0.036, "1 %": 0.01}


def settings(ask: Ask) -> Settings:
    lines = [
        Line(f"{label}, {size}", arm, share, paper=published.unified(*paper) if size == "3.6 %" else {})
        for size, share in SHARES.items()
        for label, (arm, *paper) in FORMS.items()
    ]
    return study.settings(ask, lines, published.course(ask, published.SUMMARIES), published.rows(ask), study.ALL)


worlds, units, work, table = working.worlds, study.units, working.work, working.table
