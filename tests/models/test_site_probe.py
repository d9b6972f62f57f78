"""Sites that a pass shows: those of the families' files, right where there is none; a wrong file is refused."""
