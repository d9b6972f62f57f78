"""lm-evaluation-harness begun with `tunescope` among its models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from tunescope.errors import UserError

NAME = "tunescope"


def register() -> None:
    """From now on the harness knows the model `tunescope`: it looks for models in its own registry alone.

    Raises:
        UserError: the harness is not installed.
    """
    check_installed()
    import lm_eval.models  # noqa: F401  it registers the harness's own, which is done where there are none
    from lm_eval.api.registry import model_registry

    from tunescope.exchange.harness.tuned_lm import TunedLM

    if NAME not in model_registry:
        model_registry.register(NAME, target=TunedLM)


def run(words: Sequence[str]) -> None:
    """The harness's own command, with these words behind it."""
    register()
    from lm_eval.__main__ import cli_evaluate

    before = sys.argv
    sys.argv = ["lm_eval", *words]
    try:
        cli_evaluate()
    finally:
        sys.argv = before


def check_installed() -> None:
    """UserError where lm-evaluation-harness is not there."""
    if find_spec("lm_eval") is None:
        raise UserError("lm-evaluation-harness is not installed. Type: pip install 'tunescope[lm_eval]'")
