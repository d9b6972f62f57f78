"""What tuning makes: contexts and deltas, data and pure functions. Knows no model."""
