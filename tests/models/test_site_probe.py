"""Sites that a pass shows: the same as every family's file says, right on families without one, a wrong file refused."""
