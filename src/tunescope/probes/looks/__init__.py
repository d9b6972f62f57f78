"""Probes: one file each, found by its name. Tensors in, numbers and pictures out; none runs a model."""
