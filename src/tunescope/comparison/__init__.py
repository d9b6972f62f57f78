"""A comparison: what was asked, the runs at one budget, what came of them, and the verdict."""
