"""Executors: a file here is one, and its name is what `--executor` takes."""
