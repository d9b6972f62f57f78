"""The papers' tables as commands: one file a recipe, its name on the command line with dashes for underscores."""
