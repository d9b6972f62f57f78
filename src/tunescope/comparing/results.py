"""results.json, put together from the outcomes of arm runs; only numbers and names, no paths."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from tunescope import machine, stats, store
from tunescope.comparing import examples, racing
from tunescope.comparing.bench import Bench
from tunescope.comparing.plan import command, model_name
from tunescope.gathering.spec import shown
from tunescope.train import early_stopping

LEVEL = 0.95
SELECTION = (
    "the learning rate with the best development score at the first seed, ties to the lower last training loss; "
    "the test set is scored only by the chosen runs"
)


@dataclass
class Standing:
    """What is known of one arm so far."""

    name: str
    spec: str = ""
    group: str = "none"
    note: str = ""
    parameters: Mapping[str, int] = field(default_factory=lambda: {"trained": 0, "stored": 0, "live": 0})
    status: str = "done"
    reason: str = ""
    learning_rate: float | None = None
    trials: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def dev(self) -> float | None:
        """The mean development score over seeds, if every run is done."""
        return fmean(run["dev"] for run in self.runs) if self.runs and self.status == "done" else None


def assemble(bench: Bench, standings: Sequence[Standing], best: Standing | None) -> dict[str, Any]:
    """The whole of results.json but for the verdict."""
    plan = bench.plan
    score = stats.scorer(bench.task.metric)
    return {
        "version": store.VERSION,
        "command": command(plan),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": machine.versions(),
        "machine": machine.describe(bench.device, plan.threads),
        "model": model_of(bench),
        "data": data_of(bench),
        "task": bench.task.describe(),
        "protocol": {
            "budget": plan.budgets[0] if len(plan.budgets) == 1 else None,
            "budgets": list(plan.budgets),
            "steps": plan.settings.steps,
            "batch_size": plan.settings.batch_size,
            "seeds": list(plan.seeds),
            "trials_per_arm": len(plan.rates) or plan.trials,
            "rates": list(plan.rates),
            "trial_steps": plan.trial_steps or plan.settings.steps,
            "optimizer": plan.settings.optimizer,
            "schedule": plan.settings.schedule,
            "precision": machine.precision_on(bench.device, plan.settings.precision),
            "halving": racing.halving_rule(plan.race) if plan.halving else None,
            "beyond": plan.beyond,
            "selection": SELECTION,
            "early_stopping": early_stopping(plan.settings),
            "pilot_of": asdict(plan.pilot_of) if plan.pilot_of else None,
        },
        "arms": [_arm(standing, score) for standing in standings],
        "comparisons": _comparisons(standings, best, score),
        "best": {"arm": best.name, "path": "best"} if best else None,
        "examples": examples.side_by_side(bench, standings),
    }


def best_on_dev(standings: Sequence[Standing]) -> Standing | None:
    """The arm with the highest development score; ties to fewer stored parameters, then to the earlier."""
    done = [standing for standing in standings if standing.dev is not None]
    return max(done, key=lambda one: (one.dev, -one.parameters["stored"]), default=None)


def model_of(bench: Bench) -> dict[str, Any]:
    """What identifies the model and its size."""
    return {
        "name": model_name(bench.plan.model),
        "fingerprint": bench.fingerprint,
        "type": bench.model.config.model_type,
        "kind": bench.kind,
        "layers": int(getattr(bench.model.config, "num_hidden_layers", 1)),
        "parameters": sum(value.numel() for value in bench.model.parameters()),
    }


def data_of(bench: Bench) -> dict[str, Any]:
    """A part cut out of the training file has that file's name and hash."""
    parts = bench.splits.parts()
    source = {part: part if part in bench.plan.data else "train" for part in parts}
    described: dict[str, Any] = {
        part: {
            "path": shown(bench.plan.data[source[part]]),
            "sha256": bench.sha256[source[part]],
            "rows": len(rows),
        }
        for part, rows in parts.items()
    }
    return described | {"notes": list(bench.splits.notes)}


def _arm(standing: Standing, score: stats.Score) -> dict[str, Any]:
    whole = standing.status == "done" and standing.runs
    found = stats.interval(stats.by_seed(standing.runs), score, level=LEVEL) if whole else None
    return {
        "name": standing.name,
        "spec": standing.spec,
        "group": standing.group,
        "budget_note": standing.note,
        "parameters": dict(standing.parameters),
        "status": standing.status,
        "reason": standing.reason,
        "learning_rate": standing.learning_rate,
        "trials": standing.trials,
        "runs": examples.numbers(standing.runs),
        "remarks": standing.remarks,
        "score": found.value if found else None,
        "interval": [found.low, found.high] if found else None,
        "also": examples.also(standing.runs, LEVEL) if found else {},
    }


def _comparisons(standings: Sequence[Standing], best: Standing | None, score: stats.Score) -> list[dict[str, Any]]:
    """Every other arm against the best of dev, paired over rows and seeds."""
    if best is None:
        return []
    found = []
    for other in standings:
        if other is best or other.dev is None:
            continue
        gap = stats.paired(_every_seed(other, best), _every_seed(best, other), score, level=LEVEL)
        found.append(
            {
                "a": other.name,
                "b": best.name,
                "difference": gap.value,
                "interval": [gap.low, gap.high],
                "level": LEVEL,
                "also": examples.also_paired(other.runs, best.runs, LEVEL),
            }
        )
    return found


def _every_seed(one: Standing, other: Standing) -> dict[int, stats.Array]:
    """What trains nothing and draws nothing ran once, and stands for every seed."""
    runs = stats.by_seed(one.runs)
    return dict.fromkeys(stats.by_seed(other.runs), next(iter(runs.values()))) if len(runs) == 1 else runs
