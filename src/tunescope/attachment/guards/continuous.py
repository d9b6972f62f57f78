"""Continuous batching (`model.generate_batch`) computes attention in a way of its own, which sees no context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from tunescope.attachment.guards.marks import standing_in
from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BEGIN = "init_continuous_batching"  # transformers' own; generate_batch and its context manager call it
PAGES = "PagedAttentionCache"  # what only continuous batching hands to a call of the model, as `cache`


@contextmanager
def one_batch_at_a_time(model: PreTrainedModel, what: str, instead: str) -> Iterator[None]:
    """Within it continuous batching is refused, begun before it too: `what` is attached, `instead` is what to call."""

    def begin(*_: object, **__: object) -> NoReturn:
        raise UserError(
            f"Continuous batching (generate_batch) computes attention in a way of its own, which does not see {what} "
            f"attached to this {type(model).__name__}: take {instead}, or detach() first."
        )

    def check(_module: object, _args: object, given: dict[str, Any]) -> None:
        if type(given.get("cache")).__name__ == PAGES:
            begin()

    handle = model.register_forward_pre_hook(check, prepend=True, with_kwargs=True)
    try:
        with standing_in(model, {BEGIN: begin} if hasattr(type(model), BEGIN) else {}):
            yield
    finally:
        handle.remove()
