"""Tasks: rows from files, their split, what is asked of a model and how its answers are scored."""

from tunescope.tasks.checking import Facts, inspect
from tunescope.tasks.classification import Classification
from tunescope.tasks.generation import Generation
from tunescope.tasks.metrics import aggregate, aggregate_many
from tunescope.tasks.reading import Row, read, sha256
from tunescope.tasks.reasoning import Reasoning
from tunescope.tasks.splitting import Splits, split
from tunescope.tasks.task import Encoded, Prediction, Task

__all__ = [
    "Classification",
    "Encoded",
    "Facts",
    "Generation",
    "Prediction",
    "Reasoning",
    "Row",
    "Splits",
    "Task",
    "aggregate",
    "aggregate_many",
    "inspect",
    "read",
    "sha256",
    "split",
]
