"""A results.json as `compare` writes it, made from dice: every status, two seeds lost, curves, trials, rows.

`python tests/report/report_example.py page.html [weights needed|context suffices]` writes its page.
"""

from __future__ import annotations

import pickle
import sys
from functools import cache
from typing import Any

import numpy as np

from tunescope.report.verdict import stats
from tunescope.report.verdict.verdict import decide

SEEDS = (0, 1, 2, 3, 4)
STEPS, ROWS, CHANCE = 600, 400, 0.5
SPECS = {  # name: group, spec, stored, true rate, learning rates, seconds, memory
    "zero-shot": ("none", "", 0, 0.566, (), 0.9, 310),
    "4 shots": ("text", "text:text=…", 0, 0.662, (), 3.1, 355),
    "soft-64": ("context", "soft:length=64", 49_152, 0.752, (0.05, 0.3, 1.0), 88.0, 402),
    "prefix-5": ("context", "prefix:length=5", 92_160, 0.803, (0.001, 0.005, 0.02), 74.2, 371),
    "infix-5": ("context", "infix:length=5", 92_160, 0.789, (0.001, 0.005, 0.02), 75.9, 371),
    "lora-2": ("delta", "lora:rank=2", 92_160, 0.874, (0.0005, 0.002, 0.008), 96.4, 389),
    "adapter-5": ("delta", "adapter:size=5", 96_828, 0.868, (0.0003, 0.001, 0.003), 91.0, 384),
    "bias": ("delta", "bias", 102_144, 0.851, (0.001, 0.004, 0.01), 83.7, 377),
    "prefix-2 + lora-1": (
        "both",
        "prefix:length=2+lora:rank=1",
        82_944,
        0.881,
        (0.0005, 0.002, 0.008),
        101.2,
        393,
    ),
    "full": ("full", "full", 124_439_808, 0.902, (1e-5, 3e-5, 1e-4), 402.5, 1980),
}
LOST = {
    "adapter-4096": ("delta", "adapter:size=4096", "out of memory", "needs 19.2 GiB, the device has 8 GiB"),
    "lora-2 fast": (
        "delta",
        "lora:rank=2,alpha=64.0",
        "diverged",
        "loss was nan at step 37 with learning rate 0.1",
    ),
    "anchors": ("context", "anchors:length=8", "refused", "family 'gpt2' has no label words to anchor on"),
}


def example(outcome: str = "weights needed", seed: int = 0) -> dict[str, Any]:
    """`outcome` moves the context arms level with the deltas or leaves them behind. A copy of its own at every call."""
    return pickle.loads(_thrown(outcome, seed))  # many times as quick as copy.deepcopy


@cache
def _thrown(outcome: str, seed: int) -> bytes:
    g = np.random.default_rng(seed)
    lift = 0.09 if outcome == "context suffices" else 0.0
    difficulty = g.normal(size=ROWS)
    arms = [_arm(name, difficulty, lift if spec[0] == "context" else 0.0, g) for name, spec in SPECS.items()]
    arms += [_lost(name, *rest) for name, rest in LOST.items()]
    results: dict[str, Any] = {"version": 1, **_about(), "arms": arms, "comparisons": _comparisons(arms)}
    results["best"] = {"arm": "full", "path": "best"}
    return pickle.dumps(results | {"verdict": decide(results)})


def _about() -> dict[str, Any]:
    return {
        "command": "tunescope compare --model gpt2 reviews.train.jsonl --test reviews.test.jsonl --seeds 5",
        "created": "2026-11-20T10:12:44+00:00",
        "versions": {"tunescope": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0", "python": "3.11.7"},
        "machine": {"cpu": "AMD EPYC 7B13", "cores": 2, "threads": 2, "device": "cpu"},
        "model": {
            "name": "openai-community/gpt2",
            "fingerprint": "9f2c" * 16,
            "type": "gpt2",
            "kind": "decoder",
            "parameters": 124_439_808,
        },
        "data": {
            "train": {"path": "reviews.train.jsonl", "sha256": "1a2b" * 16, "rows": 2000},
            "dev": {"path": "reviews.train.jsonl", "sha256": "3c4d" * 16, "rows": 250},
            "test": {"path": "reviews.test.jsonl", "sha256": "5e6f" * 16, "rows": ROWS},
            "notes": ["250 rows of train were set aside as dev (stratified by label, seed 0)."],
        },
        "task": {
            "kind": "classification",
            "metric": "accuracy",
            "higher_is_better": True,
            "chance": CHANCE,
            "labels": ["negative", "positive"],
        },
        "protocol": {
            "budget": 98_304,
            "steps": STEPS,
            "batch_size": 16,
            "seeds": list(SEEDS),
            "trials_per_arm": 3,
            "optimizer": "AdamW, weight decay 0",
            "schedule": "linear, 6 % warm-up",
            "selection": "highest mean dev accuracy; ties to the smaller learning rate",
            "early_stopping": "none; the last step is scored",
            "looks": None,
        },
    }


def _arm(name: str, difficulty: np.ndarray, lift: float, g: np.random.Generator) -> dict[str, Any]:
    group, spec, stored, rate, rates, seconds, memory = SPECS[name]
    rate += lift
    seeds = SEEDS if rates else SEEDS[:1]
    runs = [_run(f"{name}-{s}", s, rate, difficulty, bool(rates), g) for s in seeds]
    for run in runs:
        run["seconds"], run["memory_mb"] = round(seconds * g.uniform(0.96, 1.05), 1), memory
    interval = stats.interval(stats.by_seed(runs), stats.scorer("accuracy"))
    return {
        "name": name,
        "spec": spec,
        "group": group,
        "budget_note": f"size solved for 98,304: {stored:,} stored" if rates and group != "full" else "",
        "parameters": {
            "trained": stored * (3 if group == "context" else 1),
            "stored": stored,
            "live": stored,
        },
        "status": "done",
        "reason": "",
        "learning_rate": rates[1] if rates else None,
        "trials": [_trial(name, i, lr, rate, g) for i, lr in enumerate(rates)],
        "runs": runs,
        "score": interval.value,
        "interval": [interval.low, interval.high],
    }


def _run(
    name: str, seed: int, rate: float, difficulty: np.ndarray, trained: bool, g: np.random.Generator
) -> dict[str, Any]:
    luck = g.normal(scale=0.006) if trained else 0.0
    ease = 0.75 * difficulty + 0.66 * g.normal(size=ROWS)
    correct = (ease < np.quantile(ease, min(0.99, rate + luck))).astype(int)
    label = g.integers(2, size=ROWS)
    rows = np.stack([correct, label, np.where(correct, label, 1 - label)], axis=1)
    steps = np.arange(20, STEPS + 1, 20) if trained else []
    curve = [
        {
            "step": int(step),
            "loss": float(0.25 + 0.45 * np.exp(-step / 110) + g.normal(scale=0.02)),
            "dev": float(rate - (rate - CHANCE) * np.exp(-step / 90) + g.normal(scale=0.008))
            if step % 60 == 0
            else None,
        }
        for step in steps
    ]
    dev = curve[-1]["dev"] if curve else float(rate + g.normal(scale=0.01))
    score = float(correct.mean())
    test = {"accuracy": score, "balanced_accuracy": score - 0.002, "macro_f1": score - 0.004}
    return {
        "id": name,
        "seed": seed,
        "dev": dev,
        "test": test,
        "stats": rows.tolist(),
        "steps": STEPS,
        "curve": curve,
    }


def _trial(name: str, i: int, lr: float, rate: float, g: np.random.Generator) -> dict[str, Any]:
    lost = name == "soft-64" and i == 2
    dev = None if lost else float(rate - 0.05 * (i - 1) ** 2 - 0.03 * (i == 0) + g.normal(scale=0.006))
    status, reason = ("diverged", "loss was inf at step 12") if lost else ("done", "")
    return {
        "id": f"{name}-t{i}",
        "learning_rate": lr,
        "seed": 0,
        "dev": dev,
        "status": status,
        "reason": reason,
    }


def _lost(name: str, group: str, spec: str, status: str, reason: str) -> dict[str, Any]:
    return {
        "name": name,
        "spec": spec,
        "group": group,
        "budget_note": "",
        "parameters": {"trained": 0, "stored": 0, "live": 0},
        "status": status,
        "reason": reason,
        "learning_rate": None,
        "trials": [],
        "runs": [],
        "score": None,
        "interval": None,
    }


def _comparisons(arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = [(arm["name"], stats.by_seed(arm["runs"])) for arm in arms if arm["runs"]]
    out = []
    for i, (a, left) in enumerate(done):
        for b, right in done[i + 1 :]:
            got = stats.paired(_spread(left), _spread(right), stats.scorer("accuracy"))
            one = {"a": a, "b": b, "difference": got.value, "interval": [got.low, got.high], "level": 0.95}
            out.append(one)
    return out


def _spread(runs: dict[int, Any]) -> dict[int, Any]:
    return dict.fromkeys(SEEDS, next(iter(runs.values()))) if len(runs) == 1 else runs


if __name__ == "__main__":
    from tunescope import report

    report.write(example(*sys.argv[2:3]), sys.argv[1])
