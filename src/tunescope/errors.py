"""The one exception for what a user gave that cannot be used, and the one warning for what can be used all the same."""


class UserError(ValueError):
    """Says who asked, what was given, what is allowed and what to type; the command line prints it as one line.

    It is for what a user can mend; anything else that is raised is a fault of ours. The exit code is then 2.
    """


class Note(UserWarning):
    """What a user should know of what they gave and need not mend; the command line prints it as one line."""
