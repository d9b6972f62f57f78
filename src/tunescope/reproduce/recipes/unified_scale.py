"""How what is added is weighed: as it is, times a fixed number, times a learned one.

The fixed number is the paper's of XSum, and of GLUE for an encoder. As published the sizes are a rank of 102 and a
bottleneck of 512; under the tuned protocol, and for encoders, all have one share of the parameters.
"""

from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "The weight of what is added: simple, scaled, learned"
SOURCE = "He et al. 2022 (arXiv:2110.04366), table 5 (XSum, BART-large, feed-forward)"
TAKES = corpus_table.TAKES
KEEPS = True

ADAPTER, LORA = "adapter:placement=parallel,sites=ffn", "lora:sites=ffn.in,ffn.out"
RANK, BOTTLENECK = 102, 512
FORMS = {"encoder": (2, 0.005)}  # the scale, and the share
OTHERWISE = (4, 0.06)
PAPER = {
    "LoRA, s = 1": "44.17/20.83/35.74",
    "LoRA, s = 4": "44.59/21.31/36.25",
    "parallel adapter, s = 1": "44.35/20.98/35.98",
    "parallel adapter, s = 4": "44.85/21.54/36.58",
    "parallel adapter, s = learned": "44.56/21.31/36.29",
}


def settings(ask: Ask) -> Settings:
    course, rows = published.course(ask, published.SUMMARIES), published.rows(ask)
    made = corpus_table.settings(ask, (), course, rows, corpus_table.ALL, choose=corpus_table.has_labels(ask))
    scale, share = FORMS.get(made["kind"], OTHERWISE)
    is_typed = ask.protocol == "paper" and made["kind"] != "encoder"
    typed = {one: (f"{LORA},rank={RANK},alpha={float(one * RANK)}", None) for one in (1, scale)}
    loras = typed if is_typed else {one: corpus_table.scaled_lora(made, LORA, share, one) for one in (1, scale)}
    arms: dict[str, tuple[str, float | None]] = {f"LoRA, s = {one}": lora for one, lora in loras.items()}
    size = (f",bottleneck={BOTTLENECK}", None) if is_typed else ("", share)
    for one, how in (("1", ""), (str(scale), f",scale={float(scale)}"), ("learned", ",scale=learned")):
        arms[f"parallel adapter, s = {one}"] = (ADAPTER + how + size[0], size[1])
    lines = [Line(label, *arm, paper=published.unified(PAPER.get(label, ""))) for label, arm in arms.items()]
    return made | {"lines": corpus_table.kept(ask, lines, made["course"]["network"])}


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
