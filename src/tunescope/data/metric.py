"""What a metric of written texts is, and each by its name, which is that of its file in `metrics/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tunescope.system import plugins

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CASE = "{case}"
FOLDER = "data.metrics"


@dataclass(frozen=True)
class Metric:
    """A function of summed statistics, so that the score without a row costs one subtraction.

    compared: tokenisation, case and range in words; "{case}" where `lowercase` decides.
    best: the value of a perfect output, or a usual size where there is none; the verdict's margin is a share of it.
    width: how many statistics a row has.
    stats: (outputs, references of each, lowercase) -> (rows, width). What depends on all references of the set, such as
        the weights of NIST and CIDEr, is fixed here, and fewer rows do not change it.
    score: (sums (n, width), rows in each sum (n,)) -> (n,).
    is_bounded: whether `best` is the largest value there is (of errors: the worst); NIST and TER have none.
    higher_is_better: False for a count of errors, which cannot decide a comparison.
    needs: raises UserError, with what to type, where something that it runs on is not there.
    """

    compared: str
    best: float
    width: int
    stats: Callable[[Sequence[str], Sequence[Sequence[str]], bool], Floats]
    score: Callable[[Floats, Floats], Floats]
    higher_is_better: bool = True
    is_bounded: bool = True
    needs: Callable[[], None] = lambda: None

    @property
    def takes_lowercase(self) -> bool:
        return CASE in self.compared

    def described(self, lowercase: bool) -> str:
        direction = "" if self.higher_is_better else "; lower is better"
        return self.compared.replace(CASE, "case ignored" if lowercase else "case kept") + direction


def mean(sums: Floats, rows: Floats) -> Floats:
    """The score of a metric whose first statistic is the row's own score."""
    import numpy as np

    return np.asarray(sums[:, 0] / rows)


def per_row(
    count: Callable[[str, Sequence[str], bool], Sequence[float]],
) -> Callable[[Sequence[str], Sequence[Sequence[str]], bool], Floats]:
    """The statistics of a metric that looks at one row at a time."""

    def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
        import numpy as np

        rows = [count(output, own, lowercase) for output, own in zip(outputs, references, strict=True)]
        return np.asarray(rows, dtype=np.float64)

    return stats


def metric_names() -> list[str]:
    """The metrics: the files of their folder."""
    return plugins.names(FOLDER)


@cache
def find_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        UserError: there is none.
    """
    found: Metric = plugins.find(FOLDER, name, "metric").METRIC
    return found
