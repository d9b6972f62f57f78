"""What is asked of a model and read from its answers: kinds of task, prompts, answers."""

from tunescope.data.read import read, sha256
from tunescope.data.row import Row
from tunescope.data.scores import aggregate, aggregate_many
from tunescope.data.splits import Splits, split
from tunescope.tasks.facts import Facts, inspect
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning
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
