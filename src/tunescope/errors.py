"""The one exception for what a user gave that cannot be used, and the one warning for what can be used all the same."""

from __future__ import annotations

from typing import Any


class UserError(ValueError):
    """Says who asked, what was given, what is allowed and what to type; the command line prints it as one line.

    It is for what a user can mend; anything else that is raised is a fault of ours. The exit code is then 2.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, whatever its class is made from: what cannot be read back ends the process that waits for it."""
        return _again, (type(self), self.args), vars(self)


def _again(kind: type[UserError], args: tuple[Any, ...]) -> UserError:
    found = kind.__new__(kind)
    found.args = args
    return found


class Note(UserWarning):
    """What a user should know of what they gave and need not mend; the command line prints it as one line."""
