"""Kinds of task: one file each, found by its name, which is its name on the command line."""
