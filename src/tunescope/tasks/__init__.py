"""Tasks: rows from files, their split, what is asked of a model and how its answers are scored."""
