"""The one attention function: contexts' keys and values, deltas inside attention, what is recorded."""
