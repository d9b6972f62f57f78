"""results.json, put together from the outcomes of arm runs; numbers and names, no paths but those of arms."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from tunescope.comparison import examples, other_text
from tunescope.comparison.standing import Standing, best_on_dev, every_seed
from tunescope.report.verdict import reader, stability, stats
from tunescope.report.verdict.stats import LEVEL
from tunescope.report.verdict.variance import Pool
from tunescope.system import machine, run_folder
from tunescope.trial import rates
from tunescope.trial.bench import Bench
from tunescope.trial.chat_day import on_day_told
from tunescope.trial.command import command
from tunescope.trial.dev_rows import early_size
from tunescope.trial.dev_rows import rule as early_rows_rule
from tunescope.trial.plan import Plan
from tunescope.trial.provenance import data_of, model_of
from tunescope.trial.train.loop import early_stopping

SELECTION = (
    "the learning rate with the best development score at the first seed, ties to the lower last training loss; "
    "the test set is scored only by the chosen runs"
)
OF_A_PILOT = (
    "the middle of the learning rates, unless the training loss over the last half of a short trial of another is "
    "less than half of its own; the test set is scored only by the chosen runs"
)


def assemble(bench: Bench, standings: Sequence[Standing], looks: dict[str, Any] | None = None) -> dict[str, Any]:
    """The whole of results.json but for the verdict. looks: at how many seeds, as `comparison.interim_looks` has it."""
    plan, best = bench.plan, best_on_dev(standings)
    score, data = stats.scorer(bench.task.metric), data_of(bench)
    pool = stats.pool_of((stats.by_seed(one.runs) for one in standings if one.trials and one.status == "done"), score)
    inputs = (data.get("test") or {}).get("inputs")
    dev_rows = reader.dev_rows({"data": data})
    return {
        "version": run_folder.VERSION,
        "command": command(on_day_told(bench)),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": machine.versions(),
        "machine": machine.describe(bench.device, plan.threads),
        "model": model_of(bench),
        "data": data,
        "task": bench.task.describe(),
        "protocol": _protocol(bench, looks),
        "arms": [_arm(standing, score, dev_rows, pool, inputs) for standing in standings],
        "comparisons": _comparisons(standings, best, score, pool, inputs),
        "best": {"arm": best.name, "path": "best"} if best else None,
        "examples": examples.side_by_side(bench, standings),
        "forgetting": other_text.summary(bench),
    }


def _protocol(bench: Bench, looks: dict[str, Any] | None) -> dict[str, Any]:
    plan = bench.plan
    return {
        "budget": plan.budgets[0] if len(plan.budgets) == 1 else None,
        "budgets": list(plan.budgets),
        "steps": plan.settings.steps,
        "batch_size": plan.settings.batch_size,
        "seeds": list(plan.seeds),
        "k_shot": plan.k_shot,
        "trials_per_arm": len(plan.rates) or plan.trials,
        "rates": list(plan.rates),
        "trial_steps": plan.trial_steps or plan.settings.steps,
        "optimizer": plan.settings.optimizer,
        "schedule": plan.settings.schedule,
        "precision": machine.precision_on(bench.device, plan.training.precision),
        "halving": rates.halving_rule(plan.race) if plan.halving else None,
        "beyond": plan.past,
        "apart": plan.apart,
        "looks": looks,
        "margin": plan.margin,
        "selection": OF_A_PILOT if plan.trial_steps else SELECTION,
        "early_rows": early_size(bench.at(plan.seeds[0]), plan.settings.steps),
        "early_stopping": "; ".join(filter(None, (early_stopping(plan.settings), early_rows_rule(bench)))),
        "fit": _fit(plan),
        "pilot_of": asdict(plan.pilot_of) if plan.pilot_of else None,
    }


def _fit(plan: Plan) -> dict[str, Any] | None:
    """What a comparison was cut to, with all that was chosen."""
    if plan.fit is None:
        return None
    chosen = {"steps": plan.settings.steps, "eval_every": plan.settings.eval_every, "seeds": list(plan.seeds)}
    chosen |= {"halving": plan.halving, "beyond": plan.past, "dev_share": plan.dev_share, "arms": list(plan.arms)}
    return {**asdict(plan.fit), "chosen": chosen}


def _arm(
    standing: Standing, score: stats.MetricScore, dev_rows: int, pool: Pool | None, inputs: Sequence[int] | None
) -> dict[str, Any]:
    whole = standing.status == "done" and standing.runs
    found = (
        stats.interval(stats.by_seed(standing.runs), score, level=LEVEL, pool=pool, inputs=inputs) if whole else None
    )
    near = stability.near_best(standing.runs, score.scale, dev_rows) if found and standing.trials else None
    chosen = stability.chosen(standing.runs, score.metric) if found else None
    return {
        "name": standing.name,
        "spec": standing.spec,
        "group": standing.group,
        "varies": standing.varies,
        "budget_note": standing.note,
        "parameters": dict(standing.parameters),
        "status": standing.status,
        "reason": standing.reason,
        "learning_rate": standing.learning_rate,
        "learning_rates": standing.learning_rates,
        "head_learning_rate": standing.head_learning_rate,
        "trials": standing.trials,
        "runs": examples.numbers(standing.runs),
        "methods": list(standing.methods),
        "served_as": standing.served_as,
        "remarks": [*standing.remarks, *stability.remark(near, chosen)],
        "near_best": near,
        "chosen": chosen,
        "score": found.value if found else None,
        "interval": [found.low, found.high] if found else None,
        "also": examples.also(standing.runs, LEVEL, inputs) if found else {},
        "forgetting": other_text.of_arm(standing.runs) if found else None,
    }


def _comparisons(
    standings: Sequence[Standing],
    best: Standing | None,
    score: stats.Score,
    pool: Pool | None,
    inputs: Sequence[int] | None,
) -> list[dict[str, Any]]:
    """Every other arm against the best of dev, paired over rows and seeds."""
    if best is None:
        return []
    found = []
    for other in standings:
        if other is best or other.dev is None:
            continue
        ours, theirs = stats.by_seed(other.runs), stats.by_seed(best.runs)
        ours, theirs = every_seed(other, ours, theirs), every_seed(best, theirs, ours)
        gap = stats.paired(ours, theirs, score, level=LEVEL, pool=pool, inputs=inputs)
        found.append(
            {
                "a": other.name,
                "b": best.name,
                "difference": gap.value,
                "interval": [gap.low, gap.high],
                "level": LEVEL,
                "seeds": gap.seeds,
                "freedom": gap.freedom if math.isfinite(gap.freedom) else None,
                "parts": gap.parts,
                "widened": gap.widened,
                "also": examples.also_paired(other, best, LEVEL, inputs),
            }
        )
    return found
