"""What a verdict can tell with so many test rows, said before anything is trained."""

import math
from statistics import NormalDist

from tunescope.report.verdict.interim_looks import level, planned
from tunescope.trial.bench import Bench
from tunescope.trial.provenance import inputs_of

DIFFERENT = 0.1  # of the rows, one arm right and one wrong: few, for it was .13 to .20 of SST-2 on SmolLM2-135M


def few_test_rows(bench: Bench) -> list[str]:
    """A note where equal arms could not be told to be within the margin, by the scatter of the test rows alone.

    Of accuracy only. The half width of the paired interval is z * sqrt(DIFFERENT / rows), as in McNemar's test.
    """
    plan, rows = bench.plan, len(set(inputs_of(bench, "test")))
    if bench.task.metric != "accuracy":
        return []
    looks = planned(len(plan.seeds), max(plan.max_seeds or 0, len(plan.seeds)))
    z = NormalDist().inv_cdf(0.5 + level(looks) / 2)
    enough = math.ceil(DIFFERENT * (z / plan.margin) ** 2)
    if rows >= enough:
        return []
    half, about = z * math.sqrt(DIFFERENT / rows), float(f"{enough:.2g}")
    return [
        f"{rows:,} test rows tell a difference in accuracy to ±{half:.2g} at best, where two arms answer a tenth of "
        f"them differently. That equal arms are within the margin of {plan.margin:g} is told from about {about:,.0f} "
        "on, or with a wider margin; in a comparison by --test FILE and --margin."
    ]
