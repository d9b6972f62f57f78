"""That arms without a budget are of their own sizes, said before anything is trained."""

from collections.abc import Iterable

from tunescope.report.verdict.words import unequal
from tunescope.trial.plan import Plan


def own_sizes(plan: Plan, sizes: Iterable[tuple[int, str]]) -> list[str]:
    """A note where no budget is given and contexts and deltas store not nearly as much; it names one to type.

    sizes: what each of them stores, with its name.
    """
    stored = sorted(one for one in sizes if one[0])
    range_of = unequal(stored)
    if plan.budgets or not range_of:
        return []
    middle, _ = stored[(len(stored) - 1) // 2]
    equal = f"--budget {middle} makes them one, but for sizes that are typed"
    return [f"without --budget arms have sizes of their own, {range_of}; {equal}"]
