"""What several processes draw in a step hangs on the run's seed, the step and the process, and on nothing before."""

from itertools import product

import torch
from torch import Tensor

from tunescope.trial.train.share import Share


def drawn(rank: int, seed: int, step: int) -> Tensor:
    Share(rank=rank, processes=2).draws_for(seed, step)
    return torch.rand(4)


def test_each_draws_for_its_step() -> None:
    with torch.random.fork_rng():
        places = list(product(range(2), repeat=3))
        first = [drawn(*place) for place in places]
        again = [drawn(*place) for place in reversed(places)][::-1]
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
        assert len({tuple(one.tolist()) for one in first}) == len(places)


def test_one_alone_goes_on_with_its_own() -> None:
    with torch.random.fork_rng():
        before = torch.get_rng_state()
        Share().draws_for(0, 0)
        assert torch.equal(torch.get_rng_state(), before)
