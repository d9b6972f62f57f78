"""A file for each family that computes attention by itself, by `model_type`: OWN, what stands in for which methods."""
