"""The papers again, a table a command: the recipes are in `recipes/`, what runs and shows them is here."""
