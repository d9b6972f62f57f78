"""Arms, rates and seeds at one budget: the runs, what came of them, the verdict."""
