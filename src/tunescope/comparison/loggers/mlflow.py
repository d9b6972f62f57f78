"""MLflow: a run with a nested one for every arm run (in RUN/mlflow.db, unless MLFLOW_TRACKING_URI says where)."""

from __future__ import annotations

import os
from typing import Any

from tunescope.comparison.events import Begun, Concluded, Ended, safe
from tunescope.comparison.logger import Logger

EXPERIMENT = "tunescope"
DATABASE = "mlflow.db"


class MLflow(Logger):
    """Through its client, so that no run of the user's own is touched."""

    def __init__(self, begun: Begun) -> None:
        from mlflow.tracking import MlflowClient

        at = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(begun.folder / DATABASE).resolve()}"
        self.client: Any = MlflowClient(tracking_uri=at)
        known = self.client.get_experiment_by_name(EXPERIMENT)
        self.experiment = known.experiment_id if known else self.client.create_experiment(EXPERIMENT)
        self.run = self.client.create_run(self.experiment, run_name=begun.name).info.run_id
        for name, value in begun.question.items():
            self.client.log_param(self.run, safe(name), str(value)[:500])

    def ended(self, event: Ended) -> None:
        name = safe(event.place.name)
        run = self.client.create_run(self.experiment, run_name=name, tags={"mlflow.parentRunId": self.run}).info.run_id
        rates = "+".join(map(str, event.place.rates)) or "None"
        for key, param in {"arm": event.place.arm, "rate": rates, "seed": str(event.place.seed)}.items():
            self.client.log_param(run, key, param[:500])
        for step, loss, dev in event.curve:
            for key, value in (("loss", loss), ("dev", dev)):
                if value is not None:
                    self.client.log_metric(run, key, value, step=step)
        told = {"seconds": event.seconds, "memory_mb": event.memory_mb} | dict(event.test)
        for key, value in told.items():
            if value is not None:
                self.client.log_metric(run, safe(f"test {key}" if key in event.test else key), value)
        self.client.set_tag(run, "status", f"{event.status} {event.reason}".strip())
        self.client.set_terminated(run, "FINISHED" if event.status == "done" else "FAILED")

    def concluded(self, event: Concluded) -> None:
        for arm, edges in event.scores.items():
            for name, value in zip(("score", "low", "high"), edges, strict=True):
                self.client.log_metric(self.run, f"{safe(arm)}/{name}", value)
        tags = {"verdict": event.answer, "why": " ".join(event.sentences), "best": event.best}
        for tag, text in {**tags, "artifact": event.artifact}.items():
            self.client.set_tag(self.run, tag, str(text or ""))

    def close(self) -> None:
        self.client.set_terminated(self.run)
