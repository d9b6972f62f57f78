"""A process's part of every batch, such that the processes' gradients, averaged, are those of one with all rows."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import torch
from torch import Tensor, nn

from tunescope.attachment import share


@dataclass(frozen=True)
class Share:
    """rank: this process's, of `processes`. total: the sum of a number over all of them, the same in each.

    apart: within it a backward pass waits for nobody, and gradients are this process's own. average: make them the mean
    over all.
    """

    rank: int = 0
    processes: int = 1
    total: Callable[[float], float] = lambda value: value
    apart: Callable[[], AbstractContextManager[None]] = nullcontext
    average: Callable[[], None] = lambda: None

    def of(self, rows: Sequence[int], labelled: Sequence[int], whole: int) -> tuple[list[int], float]:
        """This process's rows of some, and what the mean loss over their labelled tokens counts for.

        whole: labelled tokens of the batch. The weight is theirs of these, and so many times as there are processes,
        for gradients are averaged. Where there are fewer rows than processes one counts for nothing in some.
        """
        mine = list(rows[self.rank :: self.processes])
        if not mine:
            return list(rows[:1]), 0.0
        return mine, self.processes * sum(labelled[row] for row in mine) / whole

    def draws_for(self, seed: int, step: int) -> None:
        """Of several processes each draws for its own rows, as dropout does, and a kept state is the first one's alone.

        So what they draw hangs on the step, and a run that was cut short goes on as it would have.
        """
        if self.processes == 1:
            return
        told = int.from_bytes(blake2b(f"{seed}/{step}/{self.rank}".encode(), digest_size=7).digest(), "big")
        torch.default_generator.manual_seed(told)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(told)


ALONE = Share()


def share_of(model: nn.Module, parameters: Mapping[str, Tensor]) -> Share:
    """This process's, where several share the model; the parameters are those that train."""
    place = share.place_in(model)
    if place is None:
        return ALONE
    return Share(*place, share.total, partial(share.apart, model), partial(share.averaged, model, parameters))
