"""An executor as it is typed: `ray:address=auto` is Ray(address="auto")."""

from tunescope.methods import text_form
from tunescope.system.executor import Executor, executors


def parse(text: str) -> Executor:
    """The executor, as its constructor gives it. Raises UserError for what is not known."""
    found: Executor = text_form.built(text, executors(), "--executor", "executor")
    return found


def show(executor: Executor) -> str:
    """`parse(show(executor)) == executor`. Fields at their defaults are left out."""
    return text_form.shown(executor, lambda text: parse(text) == executor)
