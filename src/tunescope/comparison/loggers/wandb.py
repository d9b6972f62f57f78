"""Weights & Biases: one run of it a comparison, every arm run a group of curves (WANDB_MODE=offline keeps it here)."""

from __future__ import annotations

from tunescope.comparison.events import Begun, Concluded, Ended, Step, safe
from tunescope.comparison.logger import Logger

PROJECT = "tunescope"


class Wandb(Logger):
    """Curves with their own steps, since runs go on at once; scores and the verdict in the summary."""

    def __init__(self, begun: Begun) -> None:
        import wandb

        config = dict(begun.question)
        self.run = wandb.init(
            project=PROJECT, name=begun.name, dir=str(begun.folder), config=config, reinit="finish_previous"
        )
        self.known: set[str] = set()

    def step(self, event: Step) -> None:
        self._log(safe(event.place.name), event.step, {"live loss": event.loss, "live best": event.best})

    def ended(self, event: Ended) -> None:
        name = safe(event.place.name)
        for step, loss, dev in event.curve:
            self._log(name, step, {"loss": loss, "dev": dev})
        told = {"status": event.status, "dev": event.dev, "seconds": event.seconds, "memory_mb": event.memory_mb}
        told |= {"reason": event.reason or None} | {
            f"test {safe(metric)}": value for metric, value in event.test.items()
        }
        self.run.summary.update({f"{name}/{key}": value for key, value in told.items() if value is not None})

    def _log(self, name: str, step: int, values: dict[str, float | None]) -> None:
        if name not in self.known:
            self.known.add(name)
            self.run.define_metric(f"{name}/step")
            self.run.define_metric(f"{name}/*", step_metric=f"{name}/step")
        known = {f"{name}/{key}": value for key, value in values.items() if value is not None}
        self.run.log(known | {f"{name}/step": step})

    def concluded(self, event: Concluded) -> None:
        scores = {
            f"{safe(arm)}/{name}": value
            for arm, edges in event.scores.items()
            for name, value in zip(("score", "low", "high"), edges, strict=True)
        }
        told = {"verdict": event.answer, "why": " ".join(event.sentences), "best": event.best}
        self.run.summary.update(scores | told | {"artifact": str(event.artifact or "")})

    def close(self) -> None:
        self.run.finish()
