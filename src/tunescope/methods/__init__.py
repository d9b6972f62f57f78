"""What tuning makes: contexts and deltas, data and pure functions. Nothing here knows a model."""
