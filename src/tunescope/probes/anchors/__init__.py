"""Demonstrations looked into: where information flows through them, and what can be cut or kept (Wang et al. 2023)."""
