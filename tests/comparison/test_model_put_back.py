"""While workers are at work on a GPU the model of this process waits on the CPU: it comes back, however that ends."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tunescope.comparison import workers


@pytest.mark.parametrize("fails", ["", "in the work", "as workers end"])
def test_the_model_is_where_it_was_after_the_workers_are_gone(fails: str, tmp_path: Any) -> None:
    places: list[str] = []
    model = SimpleNamespace(to=lambda device: places.append(str(device)))
    bench: Any = SimpleNamespace(model=model, device=torch.device("cuda", 0), is_placed=False)

    def close() -> None:
        places.append("workers gone")
        if fails == "as workers end":
            raise KeyboardInterrupt

    def work() -> None:
        with workers.runner(bench, tmp_path, 2, lambda *_: None, lambda *_: None) as made:
            made._put_aside()
            made.executor, made.is_begun = SimpleNamespace(close=close), True
            if fails == "in the work":
                raise KeyboardInterrupt

    if fails:
        with pytest.raises(KeyboardInterrupt):
            work()
    else:
        work()
    assert places == ["cpu", "workers gone", "cuda:0"]
