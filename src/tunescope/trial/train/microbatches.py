"""In how many parts a batch goes through the model; more of them where there is no memory for fewer."""

from collections.abc import Callable
from dataclasses import dataclass


class OutOfMemory(RuntimeError):  # noqa: N818
    """The device had no room for this arm."""


@dataclass
class Parts:
    """A run's: what was too much for one batch is too much for the next. say: told of each change, in a line."""

    count: int
    say: Callable[[str], None] = lambda line: None

    def double(self, rows: int, problem: OutOfMemory) -> None:
        """Raises the problem where a part is a single row already."""
        if self.count >= rows:
            raise problem
        self.count = min(2 * self.count, rows)
        _emptied()
        self.say(f"a batch of {rows} rows goes through in {self.count} parts from here on, with the same gradient")


def _emptied() -> None:
    """What torch keeps of memory that is free again is given back, for pieces of another size."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
