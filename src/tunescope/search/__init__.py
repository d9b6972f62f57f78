"""Prompts that a person can read, searched for: one loop, one objective, and the searches in `methods/`."""
