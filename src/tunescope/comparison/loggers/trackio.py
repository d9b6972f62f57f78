"""Trackio: curves of every run in its local database (trackio show --project tunescope)."""

from __future__ import annotations

from tunescope.comparison.events import Begun, Concluded, Ended, safe
from tunescope.comparison.logger import Logger

PROJECT = "tunescope"


class Trackio(Logger):
    """One run of it a comparison; an arm run's curve is told when it is over, at the steps that it had."""

    def __init__(self, begun: Begun) -> None:
        import trackio

        config = {name: value for name, value in begun.question.items() if value is not None}
        self.run = trackio.init(project=PROJECT, name=begun.name, config=config, embed=False)

    def ended(self, event: Ended) -> None:
        name = safe(event.place.name)
        for step, loss, dev in event.curve:
            known = {f"{name}/{key}": value for key, value in (("loss", loss), ("dev", dev)) if value is not None}
            self.run.log(known, step=step)
        told = {"seconds": event.seconds, "memory_mb": event.memory_mb} | {
            f"test {safe(metric)}": value for metric, value in event.test.items()
        }
        known = {f"{name}/{key}": value for key, value in told.items() if value is not None}
        self.run.log(known | {f"{name}/status": event.status})

    def concluded(self, event: Concluded) -> None:
        scores = {
            f"{safe(arm)}/{name}": value
            for arm, edges in event.scores.items()
            for name, value in zip(("score", "low", "high"), edges, strict=True)
        }
        self.run.log(
            scores | {"verdict": event.answer, "best": event.best or "", "artifact": str(event.artifact or "")}
        )

    def close(self) -> None:
        self.run.finish()
