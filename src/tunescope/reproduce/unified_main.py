"""The mix-and-match adapter against what it is made of, and the rest of the field, each at its own published share."""

from tunescope.reproducing import published, study, working
from tunescope.reproducing.recipe import Ask, Settings
from tunescope.reproducing.study import Line

TITLE = "MAM adapter, prefix with LoRA, and their rivals"
SOURCE = (
    "He et al. 2022 (arXiv:2110.04366), table 6 (XSum, ROUGE-2, BART-large); MAM: prefix of 30 and a scaled adapter"
)
TAKES = study.TAKES
KEEPS = True

PARALLEL = "adapter:placement=parallel,sites=ffn,scale=4.0"
LORA = "lora:sites=ffn.in,ffn.out"
LENGTH = 30  # of MAM's prefix
SHARE = 0.067


def settings(ask: Ask) -> Settings:
    made = study.settings(ask, (), published.course(ask, published.SUMMARIES), published.rows(ask), study.ALL)
    writes = made["kind"] != "encoder"
    lines = [
        Line("full tuning", "full", paper=published.unified("21.94", "37.3")),
        Line("BitFit", "bias"),
        *([Line("prompt tuning", "soft:length=100")] if writes else []),
        Line("prefix", "prefix", SHARE),
        Line("sequential adapter, feed-forward", "adapter:sites=ffn", SHARE),
        Line("LoRA, feed-forward, s = 4", _scaled_lora(made), paper=published.unified("21.31")),
        Line("parallel adapter, feed-forward, s = 4", PARALLEL, SHARE, paper=published.unified("21.54")),
        Line(f"prefix of {LENGTH} and LoRA", f"prefix:length={LENGTH}+{LORA}", SHARE),
        Line(
            f"MAM: prefix of {LENGTH} and parallel adapter",
            f"prefix:length={LENGTH}+{PARALLEL}",
            SHARE,
            paper=published.unified("21.90", "37.5"),
        ),
    ]
    return made | {"lines": study.kept(ask, lines, made["course"]["network"])}


def _scaled_lora(made: Settings) -> str:
    rank = study.size(made, LORA, SHARE)
    return f"{LORA},rank={rank},alpha={4.0 * rank}"


worlds, units, work, table = working.worlds, study.units, working.work, working.table
