"""A recipe at settings that a test has time for."""

from types import ModuleType
from typing import Any

import pytest


def smaller(patch: pytest.MonkeyPatch, recipe: ModuleType, **changed: Any) -> None:
    """From here on the recipe's settings have these values."""
    whole = recipe.settings
    patch.setattr(recipe, "settings", lambda ask: whole(ask) | changed)
