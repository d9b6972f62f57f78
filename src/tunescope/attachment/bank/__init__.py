"""What a bank does to a model while it is attached: keys and values by row, deltas by row."""
