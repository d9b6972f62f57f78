"""TensorBoard: event files in the run's folder, a curve for every run (tensorboard --logdir RUN/tensorboard)."""

from __future__ import annotations

from tunescope.comparison.events import Begun, Concluded, Ended, safe
from tunescope.comparison.logger import Logger

FOLDER = "tensorboard"


class TensorBoard(Logger):
    """A folder of events for each arm run, with its curves and scores, and one for the verdict."""

    def __init__(self, begun: Begun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.root, self.writer = begun.folder / FOLDER, SummaryWriter
        self.told = self.writer(str(self.root))
        self.told.add_text("question", "\n".join(f"- {name}: {value}" for name, value in begun.question.items()))

    def ended(self, event: Ended) -> None:
        with self.writer(str(self.root / safe(event.place.name).replace("/", "_"))) as run:
            for step, loss, dev in event.curve:
                for name, value in (("loss", loss), ("dev", dev)):
                    if value is not None:
                        run.add_scalar(name, value, step)
            last = event.curve[-1][0] if event.curve else 0
            shown = {"seconds": event.seconds, "memory_mb": event.memory_mb} | {
                f"test/{name}": value for name, value in event.test.items()
            }
            for name, value in shown.items():
                if value is not None:
                    run.add_scalar(safe(name), value, last)
            if event.reason:
                run.add_text("status", f"{event.status}: {event.reason}")

    def concluded(self, event: Concluded) -> None:
        for arm, edges in event.scores.items():
            for name, value in zip(("score", "low", "high"), edges, strict=True):
                self.told.add_scalar(f"{name}/{safe(arm)}", value)
        self.told.add_text("verdict", "\n\n".join([event.answer, *event.sentences, f"artifact: {event.artifact}"]))

    def close(self) -> None:
        self.told.close()
