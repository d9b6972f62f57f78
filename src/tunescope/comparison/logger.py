"""What a logger is, and the stream that hands each event to all of them.

A logger is one file of `comparison/loggers/`: one class, whose file's name is its name behind --report-to. None is on
by default, and one that fails is told of once and no longer asked: it never costs a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tunescope.comparison.events import Begun, Concluded, Ended, Step
from tunescope.errors import UserError
from tunescope.system import plugins

LOGGERS = "comparison.loggers"


class Logger(ABC):
    """One place that events are written to. Abstract; made when the comparison begins, and closed at its end."""

    @abstractmethod
    def __init__(self, begun: Begun) -> None:
        """Raises ImportError where its package is not installed."""

    def step(self, event: Step) -> None:  # noqa: B027
        """Nothing, unless the logger shows runs while they go."""

    @abstractmethod
    def ended(self, event: Ended) -> None: ...

    @abstractmethod
    def concluded(self, event: Concluded) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Stream:
    """Hands each event to all loggers; `warn` is told of one that fails."""

    def __init__(self, loggers: dict[str, Logger], warn: Callable[[str], None]) -> None:
        self.loggers, self.warn = loggers, warn

    def step(self, event: Step) -> None:
        self._each("step", event)

    def ended(self, event: Ended) -> None:
        self._each("ended", event)

    def concluded(self, event: Concluded) -> None:
        self._each("concluded", event)

    def close(self) -> None:
        self._each("close")

    def _each(self, what: str, *event: object) -> None:
        for name, logger in list(self.loggers.items()):
            try:
                getattr(logger, what)(*event)
            except Exception as problem:  # whatever another's package raises, the run is worth more
                self.loggers.pop(name)
                self.warn(f"note: --report-to {name} failed and is left out from here on: {_line(problem)}")


NOBODY = Stream({}, print)


@contextmanager
def stream(names: Sequence[str], begun: Begun, warn: Callable[[str], None]) -> Iterator[Stream]:
    """To these loggers, closed at the end whatever happens.

    Raises:
        UserError: a logger is not known, its package is not installed, or it cannot begin.
    """
    classes = [(name, _class(name)) for name in dict.fromkeys(names)]
    found = Stream({}, warn)
    try:
        for name, kind in classes:
            found.loggers[name] = _made(name, kind, begun)
        yield found
    finally:
        found.close()


def _class(name: str) -> type[Logger]:
    found: type[Logger] = plugins.only_class(plugins.find(LOGGERS, name, "logger"), Logger)  # type: ignore[type-abstract]
    return found


def _made(name: str, kind: type[Logger], begun: Begun) -> Logger:
    try:
        return kind(begun)
    except ImportError as problem:
        raise UserError(
            f"--report-to {name} needs what is not installed ({problem}). Type: pip install {name}"
        ) from None
    except Exception as problem:
        raise UserError(f"--report-to {name} cannot begin: {_line(problem)}; mend that, or leave it out.") from problem


def _line(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
