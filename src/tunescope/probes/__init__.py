"""Looks into attention: `see` runs a model and records, files in `looks/` and `demonstrations/` read the tensors."""
