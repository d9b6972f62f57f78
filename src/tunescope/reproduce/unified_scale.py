"""How what is added is weighed: as it is, times a fixed number, times a learned one."""

from tunescope.reproducing import published, study, working
from tunescope.reproducing.recipe import Ask, Settings
from tunescope.reproducing.study import Line

TITLE = "The weight of what is added: simple, scaled, learned"
SOURCE = "He et al. 2022 (arXiv:2110.04366), table 5 (XSum, ROUGE-2, BART-large, feed-forward)"
TAKES = study.TAKES
KEEPS = True

SHARE = 0.06
ADAPTER, LORA = "adapter:placement=parallel,sites=ffn", "lora:sites=ffn.in,ffn.out"
ADAPTERS = {"1": ("", "20.98"), "4": (",scale=4.0", "21.54"), "learned": (",scale=learned", "21.29")}
LORAS = {1: "20.83", 4: "21.31"}


def settings(ask: Ask) -> Settings:
    made = study.settings(ask, (), published.course(ask, published.SUMMARIES), published.rows(ask), study.ALL)
    rank = study.size(made, LORA, SHARE)
    lines = [
        Line(f"LoRA, s = {scale}", f"{LORA},rank={rank},alpha={float(scale * rank)}", paper=published.unified(paper))
        for scale, paper in LORAS.items()
    ]
    lines += [
        Line(f"parallel adapter, s = {scale}", ADAPTER + how, SHARE, paper=published.unified(paper))
        for scale, (how, paper) in ADAPTERS.items()
    ]
    return made | {"lines": study.kept(ask, lines, made["course"]["network"])}


worlds, units, work, table = working.worlds, study.units, working.work, working.table
