"""The one exception for what a user gave that cannot be used."""


class UserError(ValueError):
    """Says who asked, what was given, what is allowed and what to type; the command line prints it as one line."""
