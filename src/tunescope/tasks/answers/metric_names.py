"""Which metrics written answers may be scored by, and in what order."""

from __future__ import annotations

from tunescope.data.metric import find_metric
from tunescope.errors import UserError


def check_metrics(metric: str, also: tuple[str, ...], lowercase: bool) -> None:
    """UserError for a metric that there is not, that is named twice, or that cannot decide."""
    asked = (metric, *also)
    found = [find_metric(name) for name in asked]
    twice = next((name for name in asked if asked.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"Generation: the metric {twice!r} is named twice; name each once.")
    if not found[0].higher_is_better:
        raise UserError(
            f"Generation(metric={metric!r}): the first metric decides, and of {metric} lower is better. Name another "
            f"first, as in --metric bleu {metric}."
        )
    if lowercase and not any(one.takes_lowercase for one in found):
        raise UserError(f"--lowercase has no effect: {_all_of(asked)} case in any event. Leave it out.")


def _all_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names)} {'ignores' if len(names) == 1 else 'ignore'}"
