"""What is given as artifacts, as a list of them."""

from __future__ import annotations

from collections.abc import Iterable

from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact


def listed(given: object, who: str) -> list[Artifact]:
    """The artifact, or each of several. who: what is called, as `save() takes an artifact, or a list ...`.

    Raises UserError where there is none, or something else among them: a spec, a path, a list within the list.
    """
    every = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    artifacts = [one for one in every if isinstance(one, Artifact)]
    if not every or len(artifacts) < len(every):
        named = next((type(one).__name__ for one in every if not isinstance(one, Artifact)), "none")
        raise UserError(f"{who}, and was given {named}.")
    return artifacts
